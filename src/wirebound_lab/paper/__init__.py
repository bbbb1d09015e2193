"""Experiments: each a small file with its claim, its settings, and how it is run."""
