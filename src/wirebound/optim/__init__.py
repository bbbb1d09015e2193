"""How a torch optimiser becomes a rule on K numbers: SGD, Adam, and any other by its own step."""
