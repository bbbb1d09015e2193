"""The paper's mathematics: the mapping from θ to weights, and rates that change over training."""
