"""A GPT whose matrices, tokens and places included, share one budget of connections."""

from wirebound_lab.gpt.build import OUTSIDE, plain_gpt, share_out, sparse_gpt
from wirebound_lab.gpt.model import ACTIVATIONS, GPT, columns_of
from wirebound_lab.gpt.neurons import dead_neurons, fans

__all__ = ["ACTIVATIONS", "GPT", "OUTSIDE", "columns_of", "dead_neurons", "fans", "plain_gpt", "share_out", "sparse_gpt"]
