"""One MNIST step in wirebound and in its peers, side by side: bytes held, time, and whether the bound holds.

    pip install --no-deps --no-build-isolation --target peers deep-rewire sparsimony sparseprop
    python benchmarks/peers.py --peers peers --out results/peers

A peer that cannot be imported is named as such. Peers of the same approach stand for each other: torch's own pruning
and CSR are the masks and the static sparse matrices that one would write by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from peer_contenders import ALL, BUDGET, L1, LR, SIZES, Contender, deep_rewire, deep_rewire_as_it_comes, ours
from torch import Tensor

import wirebound as wb
from wirebound_lab import data as datasets
from wirebound_lab.bench import machine
from wirebound_lab.bench.contest import race, threads
from wirebound_lab.bench.text import seconds as show_seconds
from wirebound_lab.tables import markdown_table

BATCHES = (10, 32)
STEPS = 300  # in which active connections are counted, and after which bytes are


def batches(size: int, count: int = 500) -> list[tuple[Tensor, Tensor]]:
    data = datasets.load("mnist")
    x, y = data.inputs("train", flatten=True), data.train_y
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[: size * count].view(count, size)
    return [(x[batch], y[batch]) for batch in order]


def contenders(kind: str) -> tuple[list[Contender], list[str]]:
    found: list[Contender] = []
    missing: list[str] = []
    for make in ALL:
        try:
            contender = make(kind)
        except ImportError as error:
            missing.append(f"{make.__name__}: {error}")
            continue
        if contender is not None:
            found.append(contender)
    return found, missing


def census(contender: Contender, feed: Sequence[tuple[Tensor, Tensor]]) -> dict[str, int]:
    """Bytes held, and the least and most active connections after any of the steps."""
    counts = []
    for x, y in feed[:STEPS]:
        contender.step(x, y)
        counts.append(contender.count())
    return {"bytes": contender.held(), "least": min(counts), "most": max(counts)}


def newborns(contender: Contender, feed: Sequence[tuple[Tensor, Tensor]]) -> dict[str, int]:
    """Of connections born in a step: how many got a gradient in the next one, and how many outlived it."""
    seen = got = lived = 0
    counts = []
    for x, y in feed[:STEPS]:
        contender.optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(contender.model(x), y).backward()
        trained = [p for p in contender.model.parameters() if p.grad is not None]
        born = [p.detach() == 0 for p in trained]
        seen += sum(int(b.sum()) for b in born)
        got += sum(int((b & (p.grad != 0)).sum()) for b, p in zip(born, trained, strict=True))
        before = [_places(contender, p, b) for p, b in zip(trained, born, strict=True)]
        contender.update()
        counts.append(contender.count())
        after = [_places(contender, p, p.detach() > 0) for p in trained]
        lived += sum(int(torch.isin(old, new).sum()) for old, new in zip(before, after, strict=True))
    return {"born": seen, "got a gradient": got, "outlived that step": lived, "least": min(counts), "most": max(counts)}


def _places(contender: Contender, parameter: Tensor, which: Tensor) -> Tensor:
    """Where in the matrices some entries of a parameter stand: as they lie, or as their wiring says."""
    for wiring in wb.wirings(contender.model):
        if wiring.theta is parameter:
            return wiring.positions()[which]
    return which.flatten().nonzero()


def timed(kind: str, size: int, budget_seconds: float) -> dict[str, float]:
    feed = batches(size)
    racing, _ = contenders(kind)

    def run(contender: Contender, stream: Iterator[tuple[Tensor, Tensor]]) -> None:
        contender.step(*next(stream))

    runs = {c.name: partial(run, c, cycle(feed)) for c in racing}
    return {name: timing.best for name, timing in race(runs, budget_seconds).items()}


def measure(quick: bool) -> dict[str, Any]:
    feed = batches(10)
    result: dict[str, Any] = {"machine": machine.describe(), "network": SIZES, "budget": BUDGET, "lr": LR, "l1": L1}
    with threads(1):
        for kind in ("sgd", "adam"):
            racing, missing = contenders(kind)
            result.setdefault("missing", missing)
            result[f"census {kind}"] = {c.name: {**census(c, feed), "note": c.note} for c in racing}
        result["newborns"] = {}
        for make in (deep_rewire, deep_rewire_as_it_comes, ours):
            try:
                contender = make("sgd")
            except ImportError:
                continue
            assert contender is not None
            result["newborns"][contender.name] = newborns(contender, feed)
        for size in BATCHES:
            result[f"seconds batch {size}"] = timed("sgd", size, 0.3 if quick else 1.0)
    return result


def _active(row: dict[str, Any]) -> str:
    return f"{row['least']:,}" if row["least"] == row["most"] else f"{row['least']:,} to {row['most']:,}"


def markdown(result: dict[str, Any]) -> str:
    about, adam = result["machine"], result["census adam"]
    rows, newborns = [], []
    for name, row in result["census sgd"].items():
        other = f"{adam[name]['bytes']:,}" if name in adam else "has none"
        times = (show_seconds(result[f"seconds batch {size}"][name]) for size in BATCHES)
        rows.append((name, _active(row), f"{row['bytes']:,}", other, *times, row["note"]))
    for name, row in result["newborns"].items():
        counts = (f"{row[key]:,}" for key in ("born", "got a gradient", "outlived that step"))
        newborns.append((name, *counts, _active(row)))
    head = ("", "active, least to most", "bytes, SGD", "bytes, Adam", "step, batch 10", "step, batch 32", "")
    newborn_head = ("", "born", "got a gradient", "outlived that step", "active, least to most")
    parts = [
        f"One training step of 784-300-100-10 at 1 % (K = {BUDGET:,}) on MNIST, no biases, one thread; {about['processor']}, "
        f"torch {about['torch']}. Bytes are parameters, gradients, masks, signs, indices and optimiser state after a step. "
        f"Active connections are counted after each of {STEPS} steps. Times are the best of many, taken in turns, with SGD.",
        markdown_table(head, rows, range(1, 6)),
        "Connections that were just born (θ = 0), in the step after their birth:",
        markdown_table(newborn_head, newborns, range(1, 5)),
    ]
    if result["missing"]:
        parts.append("Not measured, because not installed: " + "; ".join(result["missing"]) + ".")
    if about["warning"]:
        parts.append(f"**{about['warning']}**")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="folder into which peers were installed")
    parser.add_argument("--out", type=Path, help="folder for peers.json and peers.md")
    parser.add_argument("--quick", action="store_true", help="shorter timing")
    options = parser.parse_args()
    if options.peers is not None:
        sys.path.append(str(options.peers))
    result = measure(options.quick)
    text = markdown(result)
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "peers.json").write_text(json.dumps(result, indent=2) + "\n")
        (options.out / "peers.md").write_text(text)


if __name__ == "__main__":
    main()
