"""More than 100,000 labels: which word of Python source code is missing, from the words around it?

    python examples/many_labels.py

The text is on every machine that runs this: the source of Python's standard library and of torch. Every one of its 131,072
most frequent words is a label, so the last layer has 128 × 131,072 places; it gets 400,000 connections. Its loss looks at
the labels of the batch and at 1,024 drawn ones, so that no step computes or stores a number for each label and example.
What one sees: the loss falls below that of the best guess without context, the right word is among the first five far more
often than the most frequent words are, there are exactly K connections after every step, and memory stays small.
"""

import argparse
import json
import math
import re
import resource
import sys
import sysconfig
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb

AROUND = (-4, -3, -2, -1, 1, 2, 3, 4)  # the places of the words that are seen
BUCKETS, WIDTH = 1 << 14, 128
WORD = re.compile(r"[^\W\d]\w*")


class Text(NamedTuple):
    """Words as numbers, the most frequent first: 0 is the most frequent word of all."""

    train: np.ndarray
    test: np.ndarray  # words of other files


def read_text(most_files: int | None = None) -> Text:
    """All words of Python's standard library and of torch; every twentieth file is for testing."""
    folders = [Path(sysconfig.get_path("stdlib")), Path(torch.__file__).parent]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py")) if "site-packages" not in file.relative_to(folder).parts]
    numbers: dict[str, int] = {}
    parts = array("i"), array("i")
    for place, file in enumerate(files[:most_files]):
        words = WORD.findall(file.read_text(encoding="utf-8", errors="ignore"))
        parts[place % 20 == 13].extend(numbers.setdefault(word, len(numbers)) for word in words)
    train, test = (np.frombuffer(part, dtype=np.int32) for part in parts)
    counts = np.bincount(train, minlength=len(numbers)) + np.bincount(test, minlength=len(numbers))
    rank = np.empty(len(numbers), np.int32)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(numbers), dtype=np.int32)
    return Text(rank[train], rank[test])


class Examples:
    """Places in a text whose word is a label, and what stands around them."""

    def __init__(self, words: np.ndarray, labels: int) -> None:
        self.words, self.labels = torch.from_numpy(words), labels

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Buckets of the words around [count, 8], each with the place where it stands, and the missing words [count]."""
        places = torch.randint(-AROUND[0], len(self.words) - AROUND[-1], (4 * count,), generator=generator)
        places = places[self.words[places] < self.labels][:count]  # rarer words are no labels
        around = self.words[places[:, None] + torch.tensor(AROUND)].long()
        buckets = (around * len(AROUND) + torch.arange(len(AROUND))) * 2654435761 % 4294967291 % BUCKETS
        return buckets, self.words[places].long()


class Reader(nn.Module):
    """Hidden units from the words around, and a last layer with one output for each label."""

    def __init__(self, labels: int, budget: int | None) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(BUCKETS, WIDTH, mode="sum")
        nn.init.normal_(self.bag.weight, std=0.05)  # so small that steps of the optimiser count from the first on
        self.norm = nn.LayerNorm(WIDTH)
        dense = budget is None
        self.last = nn.Linear(WIDTH, labels) if dense else wb.SparseLinear(WIDTH, labels, budget=budget, init="sparse-fan-in")

    def forward(self, buckets: Tensor) -> Tensor:
        return torch.relu(self.norm(self.bag(buckets)))


def loss_of(model: Reader, criterion: wb.LabelCrossEntropy, buckets: Tensor, words: Tensor) -> Tensor:
    if isinstance(model.last, nn.Linear):
        return F.cross_entropy(model.last(model(buckets)), words)
    return criterion(model(buckets), model.last, words)


@torch.no_grad()
def evaluate(model: Reader, criterion: wb.LabelCrossEntropy, examples: Examples, count: int) -> dict[str, float]:
    """Loss over all labels and the share of missing words that are the first, or among the first five."""
    criterion.eval()
    draw, seen = torch.Generator().manual_seed(1), 0
    sums = {"loss": 0.0, "first": 0.0, "first_five": 0.0, "guess_first": 0.0, "guess_first_five": 0.0}
    while seen < count:
        buckets, words = examples.draw(min(256, count - seen), draw)
        sums["loss"] += loss_of(model, criterion, buckets, words).item() * len(words)
        dense = isinstance(model.last, nn.Linear)
        best = model.last(model(buckets)).topk(5).indices if dense else wb.top_labels(model(buckets), model.last, 5).indices
        right = best == words[:, None]
        sums["first"] += right[:, 0].sum().item()
        sums["first_five"] += right.sum().item()
        sums["guess_first"] += (words == 0).sum().item()  # the most frequent word of all
        sums["guess_first_five"] += (words < 5).sum().item()
        seen += len(words)
    criterion.train()
    return {name: total / seen for name, total in sums.items()}


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Return what was measured at the end, with the loss at the start."""
    parser = argparse.ArgumentParser(description="Which word is missing? More than 100,000 labels.")
    parser.add_argument("--quick", action="store_true", help="part of the text, fewer labels, connections and steps")
    parser.add_argument("--labels", type=int, default=1 << 17)
    parser.add_argument("--budget", type=int, default=400_000)
    parser.add_argument("--samples", type=int, default=1024, help="labels drawn in a step; 0: all labels count in every step")
    parser.add_argument("--dense", action="store_true", help="torch's own nn.Linear and cross_entropy, for comparison")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--l1", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tested", type=int, default=4096, help="examples of other files on which it is tested")
    parser.add_argument("--text", type=Path, help="words as numbers (train.npy, test.npy), instead of reading the sources")
    options = parser.parse_args(arguments)
    labels, budget, steps = options.labels, options.budget, options.steps
    if options.quick:
        labels, budget, steps = 2000, 8000, 60
    if options.text is not None:
        text = Text(*(np.load(options.text / f"{name}.npy") for name in Text._fields))
    else:
        text = read_text(60 if options.quick else None)
    labels = min(labels, 1 + int(text.train.max()))
    train, test = Examples(text.train, labels), Examples(text.test, labels)
    counts = torch.bincount(train.words, minlength=labels)[:labels] + 1.0

    torch.manual_seed(options.seed)
    model = Reader(labels, None if options.dense else budget)
    with torch.no_grad():  # the best guess without context, to begin with
        model.last.bias.copy_((counts / counts.sum()).log())
        weights = model.last.weight if isinstance(model.last, nn.Linear) else model.last.wiring.theta
        weights.mul_(0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    rewiring = wb.Dense(model, optimizer) if options.dense else wb.DeepR(model, optimizer, l1=options.l1, lazy="on")
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
    criterion = wb.LabelCrossEntropy(options.samples or None, seed=options.seed)
    tested = 512 if options.quick else options.tested
    start = evaluate(model, criterion, test, tested)
    print(f"{labels:,} labels, {len(train.words):,} words; at the start: loss {start['loss']:.3f} on other files", flush=True)
    draw, seconds, total, rewired = torch.Generator().manual_seed(options.seed), 0.0, 0.0, 0
    every = max(1, steps // 10)
    for step in range(1, steps + 1):
        begin = time.process_time()
        loss = loss_of(model, criterion, *train.draw(256, draw))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        seconds += time.process_time() - begin
        info = rewiring.info
        total, rewired = total + loss.item(), rewired + info.rewired
        if not options.dense:
            assert info.active == info.budget == budget
            wb.wirings(model)[0].check()
        if step % every == 0:
            print(f"step {step}: loss {total / every:.3f}, {info.active:,} connections, {rewired:,} rewired", flush=True)
            total, rewired = 0.0, 0
    found = evaluate(model, criterion, test, tested)
    unit = 2**20 if sys.platform == "darwin" else 2**10
    found |= {"loss_at_start": start["loss"], "ms_of_a_step": 1000 * seconds / steps, "labels": labels, "steps": steps, "lr": options.lr}
    found["peak_MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    guess = f"{100 * found['guess_first']:.1f} % and {100 * found['guess_first_five']:.1f} %"
    print(f"other files: loss {found['loss']:.3f}; the right word is first {100 * found['first']:.1f} %, among five {100 * found['first_five']:.1f} %")
    print(f"the most frequent words would be: {guess}; chance: {100 / labels:.4f} %")
    print(f"a step: {found['ms_of_a_step']:.1f} ms of CPU time; peak memory, torch included: {found['peak_MB']:.0f} MB")
    dense = WIDTH * labels * 16 / 2**20, 256 * labels * 4 / 2**20
    print(f"dense: {dense[0]:.0f} MB for weights, gradients and Adam's moments, {dense[1]:.0f} MB for one batch of logits")
    print(json.dumps({name: value for name, value in found.items() if math.isfinite(value)}))
    return found


if __name__ == "__main__":
    main()
