"""How a torch optimiser becomes a rule on K numbers."""
