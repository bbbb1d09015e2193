"""The settings that were compared on held-out training data before the rows of ``mnist_bars`` were fixed."""

from __future__ import annotations

from typing import Any

from wirebound_lab.paper.mnist_bars import Row

_SEEDS = (0, 1)


def _paper(name: str, **settings: Any) -> Row:
    return Row(f"paper-{name}", {"connectivity": 0.01, "epochs": 20, **settings}, "scope of the paper's run", "paper", _SEEDS)


def _ours(name: str, **settings: Any) -> Row:
    return Row(f"recommended-{name}", {"connectivity": 0.01, **settings}, "the recommended preset", "recommended", _SEEDS)


def _long(name: str, connectivity: float, seeds: tuple[int, ...] = (0,), **settings: Any) -> Row:
    what = f"the thorough preset at {100 * connectivity:g} %"
    return Row(f"thorough-{100 * connectivity:g}-{name}", {"connectivity": connectivity, **settings}, what, "thorough", seeds)


CHOICES = (
    _paper("global-share"),
    _paper("global-uniform", newborns="uniform"),
    _paper("layer", scope="layer"),
    _ours("as-it-is"),
    _ours("lr-0.7", lr=0.7),
    _ours("lr-2.8", lr=2.8),
    _ours("batch-10", lr=0.7, batch_size=10),
    _ours("l1-5e-5", l1=5e-5),
    _ours("l1-2e-4", l1=2e-4),
    _ours("exponential", schedule="exponential", final_lr=0.01),
    _ours("allocation-paper", allocation="paper"),
    _ours("layer", scope="layer"),
    _ours("newborns-uniform", newborns="uniform"),
    _ours("no-bias", bias=False),
    _long("as-it-is", 0.01, (0, 1, 2)),
    _long("batch-20", 0.01, lr=1.4, batch_size=20),
    _long("batch-100", 0.01, (1,), batch_size=100),
    _long("batch-100-lr-3", 0.01, (1,), batch_size=100, lr=3.0),
    _long("lr-1.4", 0.01, (1,), lr=1.4),
    _long("l1-7e-5", 0.01, (1,), l1=7e-5),
    _long("allocation-paper", 0.01, (1,), allocation="paper"),
    _long("300-epochs", 0.01, (1,), epochs=300),
    _long("lr-1", 0.01, (0, 1, 2), lr=1.0),
    _long("lr-1-l1-7e-5", 0.01, (0, 1, 2), lr=1.0, l1=7e-5),
    _long("as-it-is", 0.02),
    _long("lr-1", 0.02, lr=1.0),
    _long("lr-1-l1-5e-5", 0.02, lr=1.0, l1=5e-5),
    _long("l1-5e-5", 0.02, l1=5e-5),
    _long("as-it-is", 0.05),
    _long("l1-5e-5", 0.05, l1=5e-5),
    _long("lr-1-l1-5e-5", 0.05, lr=1.0, l1=5e-5),
    _long("lr-1-l1-2e-5", 0.05, lr=1.0, l1=2e-5),
    _long("lr-0.5-l1-5e-5", 0.05, lr=0.5, l1=5e-5),
    _ours("adam", optimizer="adam", lr=0.003, l1=0.01, batch_size=32),
)
