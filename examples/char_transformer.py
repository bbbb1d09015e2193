"""A character-level transformer within a budget of connections:

    python examples/char_transformer.py

The text is Python's own reference manual, which ships with Python for `help()`. What one sees: the loss starts at that
of guessing and falls, the text written at the end begins to look like English about Python, and the number of
connections never changes. torch's own `nn.TransformerEncoder` is sparsified without changes.
"""

import argparse
import math
from collections.abc import Sequence
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb

LENGTH = 64  # characters that the model sees at once


class CharTransformer(nn.Module):
    def __init__(self, characters: int, width: int = 96, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, width)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters)

    def forward(self, text: Tensor) -> Tensor:
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        y = self.blocks(self.embed(text) + self.place[:length], mask=mask, is_causal=True)
        return self.head(self.norm(y))


def write(model: nn.Module, letters: str, start: str, count: int) -> str:
    """The text that the model writes after ``start``."""
    text = torch.tensor([[letters.index(c) for c in start]])
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(count):
            chances = torch.softmax(model(text[:, -LENGTH:])[0, -1] / 0.7, 0)
            text = torch.cat([text, torch.multinomial(chances, 1, generator=draw)[None]], 1)
    return "".join(letters[i] for i in text[0].tolist())


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Return the loss of the first and of the last steps, in nats a character."""
    parser = argparse.ArgumentParser(description="A character-level transformer within a budget.")
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--connectivity", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args(arguments)
    steps = 60 if options.quick else options.steps
    text = "".join(topics[name] for name in sorted(topics))
    letters = "".join(sorted(set(text)))
    number = {letter: i for i, letter in enumerate(letters)}
    data = torch.tensor([number[letter] for letter in text])

    torch.manual_seed(0)
    model: nn.Module = CharTransformer(len(letters))
    model = wb.sparsify(model, connectivity=options.connectivity, exclude="head", init="sparse-fan-in", seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    rewiring = wb.DeepR(model, optimizer, l1=5e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    print(f"{len(text):,} characters, {len(letters)} different ones: guessing costs {math.log(len(letters)):.2f}")
    losses: list[float] = []
    for step in range(1, steps + 1):
        starts = torch.randint(len(data) - LENGTH, (16,))
        batch = data[starts[:, None] + torch.arange(LENGTH + 1)]
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        info = rewiring.info
        scheduler.step()
        losses.append(loss.item())
        assert info.active == info.budget
        if step % max(steps // 20, 1) == 0:
            print(f"step {step}: loss {loss:.3f}, {info.active:,} connections, {info.rewired} rewired", flush=True)
    print(write(model, letters, "The ", 40 if options.quick else 400))
    return losses[0], sum(losses[-10:]) / 10


if __name__ == "__main__":
    main()
