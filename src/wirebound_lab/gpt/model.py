"""A GPT all of whose matrices are linear layers.

    tokens → embed + place → blocks of (norm1 → attention → +) and (norm2 → mlp → +) → norm → head

Tokens and places are linear maps of one-hot vectors, so that their matrices become sparse layers like all others.
"""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.nn.sparse_layer import SparseLayer

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class Attention(nn.Module):
    """Causal multi-head attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        y: Tensor = self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return y


class MLP(nn.Module):
    """width → hidden → width."""

    def __init__(self, width: int, hidden: int, activation: str) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.activation = activation

    def hidden(self, x: Tensor) -> Tensor:
        """What the hidden neurons say."""
        return ACTIVATIONS[self.activation](self.up(x))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(self.hidden(x))
        return y


class Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, activation: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = MLP(width, hidden, activation)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class GPT(nn.Module):
    """Logits [batch, length, vocab] of the next token, from tokens [batch, length].

    Args:
        vocab: different tokens.
        context: tokens that the model sees at once.
        width: of the residual stream; a multiple of ``heads``.
        depth: blocks.
        heads: of each attention.
        activation: of the hidden neurons, ``"gelu"`` or ``"relu"``.
        mlp_factor: hidden neurons of a block as a multiple of ``width``.
    """

    def __init__(
        self, vocab: int = 256, *, context: int = 256, width: int = 256, depth: int = 4, heads: int = 4,
        activation: str = "gelu", mlp_factor: float = 4,
    ) -> None:  # fmt: skip
        super().__init__()
        if width % heads:
            raise ValueError(f"width (={width}) must be a multiple of heads (={heads})")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation (={activation!r}) must be one of {', '.join(ACTIVATIONS)}")
        self.vocab, self.context, self.width, self.depth, self.heads = vocab, context, width, depth, heads
        self.embed = nn.Linear(vocab, width, bias=False)
        self.place = nn.Linear(context, width, bias=False)
        self.blocks = nn.ModuleList(Block(width, heads, round(mlp_factor * width), activation) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[-1]
        if length > self.context:
            raise ValueError(f"the length of the text (={length}) must be at most context (={self.context})")
        x = F.embedding(tokens, columns_of(self.embed)) + columns_of(self.place)[:length]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def mlps(self) -> Iterator[MLP]:
        for block in self.blocks:
            assert isinstance(block, Block)
            yield block.mlp


def columns_of(layer: nn.Module) -> Tensor:
    """[inputs, outputs]: what a layer answers to each one-hot vector, one row each; with the gradient to its weights."""
    if not isinstance(layer, SparseLayer):
        weight: Tensor = layer.weight  # type: ignore[assignment]
        return weight.t()
    shape, theta = layer.wiring.layers[layer.layer_id], layer.wiring.theta
    answers: Tensor = layer(torch.eye(shape.n_in, dtype=theta.dtype, device=theta.device))
    return answers
