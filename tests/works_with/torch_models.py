"""Models as people write them with torch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_draw = torch.Generator().manual_seed(5)
WORDS = torch.randint(0, 20, (3, 6), generator=_draw)
FRAMES = torch.randn(3, 6, 8, generator=_draw)
ROWS = torch.randn(6, 12, generator=_draw)
IMAGES = torch.rand(2, 3, 16, 16, generator=_draw)


class Translator(nn.Module):
    """An LSTM that reads, one that writes, and attention from the second to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(20, 8), nn.Embedding(20, 8)
        self.read = nn.LSTM(8, 10, num_layers=2, batch_first=True)
        self.write = nn.LSTM(8, 10, num_layers=2, batch_first=True)
        self.combine, self.say = nn.Linear(20, 10), nn.Linear(10, 20)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        read, state = self.read(self.source(source))
        written, _ = self.write(self.target(target), state)
        seen = (written @ read.transpose(1, 2)).softmax(-1) @ read
        return self.say(torch.tanh(self.combine(torch.cat([written, seen], -1))))


class Cells(nn.Module):
    """A loop over time written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.below, self.above, self.out = nn.LSTMCell(8, 10), nn.GRUCell(10, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = c = g = x.new_zeros(len(x), 10)
        for frame in x.unbind(1):
            h, c = self.below(frame, (h, c))
            g = self.above(h, g)
        return self.out(g)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.out = nn.Conv2d(4 + 3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        deep = F.relu(self.deep(F.relu(self.down(x))))
        return self.out(torch.cat([self.up(deep), x], 1))


class Dilated(nn.Module):
    """A temporal convolutional network with gates, as WaveNet has them."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.ModuleList([nn.Conv1d(8, 8, 2, dilation=d) for d in (1, 2)])
        self.gates = nn.ModuleList([nn.Conv1d(8, 8, 2, dilation=d) for d in (1, 2)])
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        for convolve, gate in zip(self.filters, self.gates, strict=True):
            past = F.pad(x, (convolve.dilation[0], 0))
            x = x + torch.tanh(convolve(past)) * torch.sigmoid(gate(past))
        return self.out(x.mean(-1))


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(12, 16), nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 12))
        self.mean, self.spread = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = F.relu(self.encode(x))
        mean, spread = self.mean(hidden), self.spread(hidden)
        return self.decode(mean + torch.randn_like(mean) * spread.exp()), mean, spread


class Mixer(nn.Module):
    """One block of an MLP-Mixer: a linear layer across tokens, one across channels."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.channels, self.norm = nn.Linear(6, 6), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm(x))


class Recommender(nn.Module):
    """Embedding bags, a bilinear form of two of them, and a deep part."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.cross = nn.EmbeddingBag(20, 8), nn.Bilinear(8, 8, 6)
        self.deep = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))

    def forward(self, words: Tensor) -> Tensor:
        bag = self.bag(words)
        return self.deep(torch.cat([bag, self.cross(bag, bag.flip(1))], 1))


class Siamese(nn.Module):
    """One branch, used twice in a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        return F.cosine_similarity(self.branch(x), self.branch(x.flip(0)))


class Coupling(nn.Module):
    """A step of a normalising flow."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 12))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept, moved = x.chunk(2, -1)
        scale, shift = self.net(kept).chunk(2, -1)
        return torch.cat([kept, moved * torch.tanh(scale).exp() + shift], -1), scale.sum(-1)


class Packed(nn.Module):
    """A bidirectional GRU over a packed sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = nn.GRU(8, 10, bidirectional=True, batch_first=True), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 1]), batch_first=True)
        padded, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(padded.sum(1))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _vgg() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 5),
    )  # fmt: skip


def _depthwise() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 12, 1), nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.SiLU(), nn.Conv2d(12, 4, 3, stride=2)
    )


def _video() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 3 * 5 * 5, 3))


Made = tuple[Callable[[], nn.Module], tuple[Any, ...], dict[str, Any]]
MODELS: dict[str, Made] = {
    "nn.Transformer": (lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True), (FRAMES, FRAMES.flip(1)), {}),
    "nn.TransformerEncoder": (_encoder, (FRAMES,), {}),
    "LSTM encoder and decoder": (Translator, (WORDS, WORDS.flip(1)), {}),
    "cells in a loop": (Cells, (FRAMES,), {}),
    "packed GRU": (Packed, (FRAMES,), {}),
    "VGG": (_vgg, (IMAGES,), {}),
    "U-Net": (UNet, (IMAGES,), {}),
    "depthwise": (_depthwise, (IMAGES,), {}),
    "video": (_video, (torch.randn(2, 1, 3, 5, 5, generator=_draw),), {}),
    "WaveNet": (Dilated, (FRAMES,), {}),
    "variational autoencoder": (Variational, (ROWS,), {}),
    "MLP-Mixer": (Mixer, (FRAMES,), {}),
    "recommender": (Recommender, (WORDS,), {"include": [nn.Linear, nn.Bilinear]}),
    "siamese": (Siamese, (ROWS,), {}),
    "normalising flow": (Coupling, (ROWS,), {}),
}
