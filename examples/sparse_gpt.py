"""A GPT whose dense weights never exist, trained on Python's own source code:

    python examples/sparse_gpt.py                                     # width 512, 4 layers: 100,000 of 12.9 million connections
    python examples/sparse_gpt.py --width 2048 --depth 8 --heads 16 --budget 1000000        # of 404 million, in less than 1 GB

What one sees: the loss starts at that of guessing among 256 bytes (5.55 nats) and falls, the text written at the end begins to
look like Python, every step ends with exactly as many connections as the first, and the process stays small.
`wirebound train --task gpt` does the same with checkpoints, resuming and reports.
"""

import argparse
import math
import resource
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb

BYTES = 256


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        seen = F.scaled_dot_product_attention(*split.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Tokens and places are linear maps of one-hot vectors, so that they become sparse like all else."""

    def __init__(self, width: int, depth: int, heads: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.embed, self.place = nn.Linear(BYTES, width, bias=False), nn.Linear(context, width, bias=False)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, BYTES)

    def forward(self, text: Tensor) -> Tensor:
        tokens, places = self.embed(torch.eye(BYTES)), self.place(torch.eye(self.context))
        x = F.embedding(text, tokens) + places[: text.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def read(folder: str | None) -> Tensor:
    """All text files of a folder as bytes; by default the modules of the standard library."""
    paths = sorted(Path(folder).rglob("*") if folder else Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return torch.frombuffer(bytearray(b"\0".join(p.read_bytes() for p in paths if p.is_file())), dtype=torch.uint8)


@torch.no_grad()
def write(model: GPT, start: bytes, count: int) -> str:
    """The text that the model writes after ``start``."""
    text, draw = torch.tensor([list(start)]), torch.Generator().manual_seed(0)
    for _ in range(count):
        chances = torch.softmax(model(text[:, -model.context :])[0, -1] / 0.8, 0)
        text = torch.cat([text, torch.multinomial(chances, 1, generator=draw)[None]], 1)
    return bytes(text[0].tolist()).decode(errors="replace")


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Return the loss of the first step and the mean of the last ten, in nats a byte."""
    parser = argparse.ArgumentParser(description="A GPT with an exact budget of connections.")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--budget", type=int, default=100_000, help="connections of all matrices together")
    parser.add_argument("--batch", type=int, default=8, help="pieces of text in a step, one through the model at a time")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--text", help="folder of text files (default: Python's standard library)")
    parser.add_argument("--quick", action="store_true", help="a small network and a few steps")
    options = parser.parse_args(arguments)
    if options.quick:
        options.width, options.depth, options.heads, options.context = 64, 2, 2, 32
        options.budget, options.steps = 12_000, 40
    text = read(options.text)

    torch.manual_seed(0)
    with torch.device("meta"):  # shapes without numbers
        model: nn.Module = GPT(options.width, options.depth, options.heads, options.context)
    model = wb.sparsify(model, budget=options.budget, allocation="erdos-renyi", init="sparse-fan-in", seed=0)
    (wiring,) = wb.wirings(model)
    print(f"{wiring.budget:,} connections of {wiring.possible:,}, {len(text):,} bytes of text")
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0)
    rewiring = wb.DeepR(model, optimizer)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=options.steps, pct_start=0.1)
    losses: list[float] = []
    for step in range(1, options.steps + 1):
        starts = torch.randint(len(text) - options.context, (options.batch,))
        pieces, total = text[starts[:, None] + torch.arange(options.context + 1)].long(), 0.0
        for piece in pieces.split(1):  # activations of one piece at a time
            loss = F.cross_entropy(model(piece[:, :-1]).flatten(0, 1), piece[:, 1:].flatten()) / options.batch
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(total)
        assert rewiring.info is not None
        assert rewiring.info.active == options.budget
        if step % max(1, options.steps // 20) == 0:
            print(f"step {step}: {total:.3f} nats, {total / math.log(2):.3f} bits a byte, {rewiring.info.rewired} rewired", flush=True)
    wiring.check()
    print(write(model, b"def ", 40 if options.quick else 300))  # type: ignore[arg-type]
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB, torch included")
    return losses[0], sum(losses[-10:]) / 10


if __name__ == "__main__":
    main()
