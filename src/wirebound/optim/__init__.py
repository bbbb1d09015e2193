"""How a torch optimiser becomes a rule on K numbers: one file for each rule, and one for any other optimiser."""
