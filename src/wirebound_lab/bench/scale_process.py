"""Trains one layer too large to exist dense, in a process of its own, so that the peak memory is its own.

Run as ``python -m wirebound_lab.bench.scale_process '{"side": …, "budget": …}'``; prints one JSON object.

Memory of a step beside what is kept: x, y, dx and the kernels' panel, batch × n each. The loss is E = ½‖y‖²,
whose gradient is y itself, so dy is y's own memory; gradients become ``x.grad`` and ``theta.grad`` uncopied.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

import wirebound as wb
from wirebound import ops
from wirebound.methods.deep_r import DeepR
from wirebound.ops import library
from wirebound.ops.philox import Stream, stream_of

# A θ is about 1/√n_in at the start and Adam moves it by about η: about one in a thousand dies in a step.
_LR_OF_THETA = 1e-3
_L1, _TEMPERATURE = 1e-3, 1e-12


@dataclass
class Peak:
    """Highest resident memory of this process, where the system allows it in parts."""

    before: int = 0

    def read(self) -> int:
        """Bytes, since the last ``restart``."""
        with suppress(OSError):
            for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def restart(self) -> None:
        """Forget the peak so far; where this is not possible, later readings include it."""
        self.before = max(self.before, self.read())
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def whole(self) -> int:
        return max(self.before, self.read())


class Run:
    """The layer, its method and its input."""

    def __init__(self, side: int, budget: int, batch: int) -> None:
        self.layer = wb.SparseLinear(side, side, bias=False, budget=budget)
        lr = _LR_OF_THETA * side**-0.5
        self.method = DeepR(
            self.layer, torch.optim.Adam(self.layer.parameters(), lr=lr), l1=_L1, temperature=_TEMPERATURE
        )
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(batch, side, generator=generator).requires_grad_()

    def step(self) -> int:
        """One training step as a user writes it; how many connections were replaced."""
        self.method.zero_grad()
        self.x.grad = None
        y = self.layer(self.x)
        torch.autograd.backward(y, y.detach())
        return self.method.step().rewired

    def kernels(self) -> dict[str, float]:
        """The same step by the ops alone, each timed: no autograd, no method, no module."""
        self.method.zero_grad()
        self.x.grad = None
        layer, method, wiring = self.layer, self.method, self.layer.wiring
        x, theta = self.x.detach(), wiring.theta.detach()
        index = wiring.layer_index(0)
        adapter, group = method.adapter, method.adapter.group(wiring)
        method.steps += 1
        clock = [time.perf_counter()]
        y = ops.linear_forward(x, theta, index, layer.out_features, None)
        clock.append(time.perf_counter())
        _, dtheta = ops.linear_backward(x, y, theta, index, True, True)
        clock.append(time.perf_counter())
        dead = ops.update_(
            theta,
            dtheta,
            adapter.rule(0, group),
            adapter.state(0, group),
            method.drifts(wiring, 0, method.steps, float(group["lr"])),
            wiring.seed,
            stream_of(Stream.NOISE, wiring.index),
            method.steps,
            sign_bound=True,
            clamp=False,
        )
        clock.append(time.perf_counter())
        wiring.rewire_(dead, adapter.carried(0, group), method.steps, None)
        clock.append(time.perf_counter())
        names = ("forward", "backward", "update", "rewiring")
        return dict(zip(names, (b - a for a, b in pairwise(clock)), strict=True))


def measure(side: int, budget: int, batch: int, steps: int, threads: int) -> dict[str, float]:
    """Memory first, from steps alone; then steps and bare kernels in turns."""
    torch.set_num_threads(threads)
    peak = Peak()
    found: dict[str, float] = {"peak of imports": peak.read()}
    run = Run(side, budget, batch)
    found["peak of construction"] = peak.read()
    peak.restart()
    found["rewired in a step"] = sum(run.step() for _ in range(2)) / 2
    found["peak of steps"] = peak.read()
    found["peak"] = peak.whole()
    kept = wb.ledger(run.layer, run.method)  # before zero_grad: gradients count
    found["bytes a connection"] = kept.per_connection
    found["bytes kept"] = kept.total
    run.layer.wiring.check()
    times: list[float] = []
    parts: list[dict[str, float]] = []
    for _ in range(steps):
        start = time.perf_counter()
        run.step()
        times.append(time.perf_counter() - start)
        parts.append(run.kernels())
    found["seconds a step"] = min(times)
    for name in parts[0]:
        found[f"seconds of {name}"] = min(part[name] for part in parts)
    run.layer.wiring.check()
    return found


if __name__ == "__main__":
    found = measure(**json.loads(sys.argv[1]))
    print(json.dumps({"kernels": library.isa(), "found": found}))
