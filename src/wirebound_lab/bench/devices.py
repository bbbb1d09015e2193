"""``wirebound bench --device NAME``: is everything right on that device, and how long does it take there?

First the answers: every kind of layer and of method on the device against the kernels of the CPU, positions of connections
equal and numbers up to rounding. Then the tables: a training step of three networks, dense and sparse, as it is and under
``torch.compile``. On ``cpu`` the device backend is what is compared and the kernels are what is timed.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb
from wirebound import ops
from wirebound_lab.tables import markdown_table

STEPS = 8
SECTION = "<!-- --8<-- [{}:table] -->"
_LOOSE, _TIGHT = 1e-3, 1e-5  # relative and absolute: θ agrees up to rounding, which a few steps add up


@dataclass(frozen=True)
class Answer:
    """One comparison with the CPU: empty, or what differs."""

    what: str
    fault: str


@dataclass(frozen=True)
class Timing:
    """Milliseconds of a training step, the least of some."""

    network: str
    connectivity: float | None  # None: the dense network
    eager: float
    compiled: float | None


@dataclass
class DeviceReport:
    """What a person with such a device can send."""

    device: str
    date: str
    machine: dict[str, Any]
    answers: list[Answer] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not any(answer.fault for answer in self.answers)


def require_device(name: str) -> torch.device:
    """The device, or an error that says which there are."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device (={name!r}) must be one that torch knows, such as cpu, cuda or xpu") from error
    if device.type == "mps":
        raise ValueError("device (='mps') must be another: wirebound needs float64, which mps does not have")
    module = getattr(torch, device.type, None)
    if device.type != "cpu" and not (module is not None and hasattr(module, "is_available") and module.is_available()):
        raise ValueError(f"device (={name!r}) must be one that this machine has: torch {torch.__version__} finds none here")
    return device


@contextmanager
def _at_device(device: torch.device) -> Iterator[None]:
    with ops.use("device") if device.type == "cpu" else nullcontext():
        yield


class Sees(nn.Module):
    """A small convolutional network."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, stride=2, groups=2)
        self.answer = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(torch.relu(self.two(torch.relu(self.one(x)))).mean((2, 3)))


class Remembers(nn.Module):
    """A recurrent network."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.memory, self.answer = kind(6, 9, batch_first=True, bidirectional=True), nn.Linear(18, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self.memory(x)[0].mean(1))


class Attends(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0.0)
        self.answer = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self.layer(x).mean(1))


def _perceptron(*sizes: int) -> nn.Module:
    layers = [module for a, b in itertools.pairwise(sizes) for module in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


Make = tuple[Callable[[], nn.Module], tuple[int, ...]]
SMALL: dict[str, Make] = {
    "linear": (lambda: _perceptron(12, 20, 10), (9, 12)),
    "conv": (lambda: Sees(8), (4, 3, 6, 6)),
    "lstm": (lambda: Remembers(nn.LSTM), (4, 5, 6)),
    "gru": (lambda: Remembers(nn.GRU), (4, 5, 6)),
    "attention": (lambda: Attends(8, 2), (4, 5, 8)),
}
METHODS: dict[str, Callable[..., Any]] = {
    "DeepR": lambda m, o: wb.DeepR(m, o, l1=1e-2, temperature=1e-4),
    "SET": lambda m, o: wb.SET(m, o, every=3),
    "RigL": lambda m, o: wb.RigL(m, o, every=3),
    "Fixed": lambda m, o: wb.Fixed(m, o),
}
LARGE: dict[str, Make] = {
    "perceptron 784-1024-1024-10, batch 128": (lambda: _perceptron(784, 1024, 1024, 10), (128, 784)),
    "CNN, 64 channels of 16×16, batch 32": (lambda: Sees(64), (32, 3, 16, 16)),
    "transformer layer, width 256, 32 × 16 tokens": (lambda: Attends(256, 4), (32, 16, 256)),
}
QUICK: dict[str, Make] = {"perceptron 64-64-10, batch 16": (lambda: _perceptron(64, 64, 10), (16, 64))}


def _train(make: Make, method: Callable[..., Any], device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    """Positions and parameters after some steps, on the CPU."""
    torch.manual_seed(0)
    model = wb.sparsify(make[0](), 0.3, seed=4)
    x, y = torch.randn(make[1]).to(device), (torch.arange(make[1][0]) % 10).to(device)
    model = model.to(device)
    trained = method(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for _ in range(STEPS):
        F.cross_entropy(model(x), y).backward()
        trained.step()
        trained.zero_grad()
    for wiring in wb.wirings(model):
        wiring.check()
    return [w.positions().cpu() for w in wb.wirings(model)], [p.detach().cpu() for p in model.parameters()]


def answers(device: torch.device) -> Iterator[Answer]:
    """Every network under DEEP R, and a perceptron under every method, on the device and on the CPU."""
    pairs = [(network, "DeepR") for network in SMALL] + [("linear", method) for method in METHODS if method != "DeepR"]
    for network, method in pairs:
        expected = _train(SMALL[network], METHODS[method], torch.device("cpu"))
        with _at_device(device):
            found = _train(SMALL[network], METHODS[method], device)
        fault = ""
        if not all(map(torch.equal, found[0], expected[0])):
            fault = "positions differ"
        elif not all(torch.allclose(a, b, _LOOSE, _TIGHT) for a, b in zip(found[1], expected[1], strict=True)):
            fault = f"parameters differ by {max(float((a - b).abs().max()) for a, b in zip(found[1], expected[1], strict=True)):g}"
        yield Answer(f"{network}, {method}", fault)


def _stepper(make: Make, connectivity: float | None, device: torch.device, compiled: bool) -> Callable[[], None]:
    torch.manual_seed(0)
    plain = make[0]()
    model = (plain if connectivity is None else wb.sparsify(plain, connectivity, exclude="answer")).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if connectivity is not None:
        wb.DeepR(model, optimizer, l1=1e-4)
    network = torch.compile(model, fullgraph=True) if compiled else model
    x, y = torch.randn(make[1], device=device), torch.arange(make[1][0], device=device) % 10
    wait = getattr(torch, device.type).synchronize if device.type != "cpu" else lambda: None

    def step() -> None:
        F.cross_entropy(network(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        wait()

    return step


def timings(device: torch.device, seconds: float, quick: bool) -> Iterator[Timing]:
    """Steps as they are and compiled, in turns; the least time of each counts."""
    for network, make in (QUICK if quick else LARGE).items():
        for connectivity in (None, 0.05):
            steps = [_stepper(make, connectivity, device, False)]
            if not quick:
                steps.append(_stepper(make, connectivity, device, True))
            least = [float("inf")] * len(steps)
            for step in steps:
                for _ in range(3):
                    step()
            until = time.perf_counter() + seconds * len(steps)
            while time.perf_counter() < until:
                for number, step in enumerate(steps):
                    start = time.perf_counter()
                    step()
                    least[number] = min(least[number], time.perf_counter() - start)
            yield Timing(network, connectivity, 1e3 * least[0], 1e3 * least[1] if len(least) > 1 else None)


def measure(device: torch.device, machine: dict[str, Any], seconds: float, quick: bool) -> DeviceReport:
    """Answers first; no table is worth anything where they are wrong."""
    report = DeviceReport(str(device), datetime.now(timezone.utc).isoformat(timespec="seconds"), machine)
    if device.type == "cuda":
        report.machine["device"] = torch.cuda.get_device_name(device)
    report.answers = list(answers(device))
    if report.is_right:
        report.timings = list(timings(device, seconds, quick))
    return report


def as_markdown(report: DeviceReport) -> str:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}"

    rows = [[answer.what, answer.fault or "the same as on the CPU"] for answer in report.answers]
    text = f"# {report.device}\n\n{report.date}, torch {torch.__version__}\n\n" + markdown_table(["answer", "found"], rows)
    if report.timings:
        found = [
            [t.network, "dense" if t.connectivity is None else f"{100 * t.connectivity:g} %", number(t.eager), number(t.compiled)]
            for t in report.timings
        ]
        table = markdown_table(["network", "connections", "eager ms", "compiled ms"], found, (2, 3))
        text += f"\n\n{SECTION.format('start')}\n{table}\n{SECTION.format('end')}"  # the documentation shows it
    if report.machine.get("warning"):
        text += f"\n\n{report.machine['warning']}"
    return text + "\n"


def write(folder: Path, report: DeviceReport) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    name = report.device.replace(":", "-")
    paths = [folder / f"device-{name}.json", folder / f"device-{name}.md"]
    paths[0].write_text(json.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    paths[1].write_text(as_markdown(report), encoding="utf-8")
    return paths
