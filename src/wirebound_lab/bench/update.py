"""The update of a step, Algorithm 1 up to the deaths, against torch's Adam alone; and its random numbers."""

from __future__ import annotations

import ctypes
import dataclasses

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops import library, philox
from wirebound.ops.philox import Stream
from wirebound.ops.rule import DriftAndNoise, Rule, RuleKind, State
from wirebound_lab.bench.contest import Call, Contender, Ratio, compete
from wirebound_lab.bench.results import Measurement, Section, Settings, Table, WrongAnswerError
from wirebound_lab.bench.timing import threads

SIZES = (100_000, 1_000_000)
DEAD_SHARE = 1000  # one in so many θ is below 0 and is found dead in every call
_LR = 1e-7  # so small that thousands of repeated calls leave θ where it is
_SHRINK, _NOISE = 1e-10, 1e-9
OURS = "ours, Adam + ℓ1 + noise + death"


class AdamNumbers:
    """K parameters with gradient, Adam state and ages."""

    def __init__(self, count: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.theta = 0.5 + torch.rand(count, generator=generator)
        self.theta[::DEAD_SHARE] = -0.5
        self.grad = torch.randn(count, generator=generator)
        born = torch.zeros(count, dtype=torch.int32)
        self.state = State(exp_avg=torch.zeros(count), exp_avg_sq=torch.zeros(count), born=born)
        self.steps = 0

    def update(self, shrink: float = _SHRINK, noise: float = _NOISE, *, sign_bound: bool = True) -> Tensor:
        """One step; the indices of the dead."""
        self.steps += 1
        state = dataclasses.replace(self.state, clock=self.steps)
        drifts = [DriftAndNoise(0, self.theta.numel(), shrink, noise)]
        how = {"seed": 1, "stream": Stream.NOISE, "step": self.steps}
        rule = Rule(RuleKind.ADAM, lr=_LR)
        return ops.backend_of(self.theta).update_(self.theta, self.grad, rule, state, drifts, **how, sign_bound=sign_bound, clamp=False)


def torch_adam(count: int, *, foreach: bool = False, fused: bool = False) -> tuple[torch.nn.Parameter, Call]:
    """The same parameters and gradients, moved by ``torch.optim.Adam`` and by nothing else."""
    numbers = AdamNumbers(count)
    parameter = torch.nn.Parameter(numbers.theta)
    parameter.grad = numbers.grad
    return parameter, torch.optim.Adam([parameter], lr=_LR, foreach=foreach, fused=fused).step


def check_update(count: int) -> None:
    """Ours without drift and death is torch's Adam; with them, kernel and reference agree."""
    mine = AdamNumbers(count)
    theirs, step = torch_adam(count)
    for _ in range(3):
        mine.update(sign_bound=False)
        step()
    if not torch.allclose(mine.theta, theirs.detach(), rtol=1e-6, atol=1e-9):
        raise WrongAnswerError("update: ours without drift differs from torch.optim.Adam")
    results = []
    for implementation in ("reference", "native"):
        numbers = AdamNumbers(count)
        with ops.use(implementation):
            results.append((numbers.update(shrink=1e-3, noise=1e-2), numbers.theta))
    (dead, theta), (dead_native, theta_native) = results
    if not torch.equal(dead, dead_native) or not torch.allclose(theta, theta_native, rtol=1e-5, atol=1e-6):
        raise WrongAnswerError("update: the kernel differs from the reference")


def measure_update(count: int, settings: Settings) -> Measurement:
    check_update(min(count, 100_000))
    quiet, full = AdamNumbers(count), AdamNumbers(count)
    contenders = [
        Contender("torch Adam", torch_adam(count)[1]),
        Contender("torch Adam, foreach", torch_adam(count, foreach=True)[1]),
        Contender("torch Adam, fused", torch_adam(count, fused=True)[1]),
        Contender("ours, Adam + ℓ1 + death", lambda: quiet.update(noise=0.0)),
        Contender(OURS, full.update),
    ]
    ratios = [Ratio(f"{name} ÷ ours", name, OURS) for name in ("torch Adam", "torch Adam, fused")]
    found = compete(f"K {count:,}", contenders, settings, ratios)
    found.numbers["ours, ns a connection"] = 1e9 * found.times[OURS].best / count
    return found


def native_normals(out: Tensor, seed: int = 0) -> Call:
    """Fills ``out`` by the kernel that the update draws its noise with."""
    native = library.load()
    assert native is not None
    function = native["wb_normals"]
    function.restype = None
    number, long = ctypes.c_uint64, ctypes.c_int64
    function.argtypes = [number, ctypes.c_uint32, number, long, long, ctypes.c_void_p]
    return lambda: function(seed, int(Stream.NOISE), 1, 0, out.numel(), out.data_ptr())


def measure_normals(count: int, settings: Settings) -> Measurement:
    theirs, mine = torch.empty(count), torch.empty(count)
    generator = torch.Generator().manual_seed(0)
    contenders = [Contender("torch.randn", lambda: theirs.normal_(generator=generator))]
    if ops.native_available():
        contenders.append(Contender("ours, normals", native_normals(mine)))
        contenders[-1].run()
        few = min(count, 100_000)
        expected = philox.normals(0, int(Stream.NOISE), 1, few, torch.device("cpu"))
        if not torch.allclose(mine[:few], expected, rtol=1e-4, atol=1e-5):
            raise WrongAnswerError("normals: the kernel differs from the reference")
    found = compete(f"{count:,} normals", contenders, settings)
    best = {name: timing.best for name, timing in found.times.items()}
    found.numbers.update({f"{name}, ns a number": 1e9 * seconds / count for name, seconds in best.items()})
    if "ours, normals" in best:
        found.numbers["torch ÷ ours"] = best["torch.randn"] / best["ours, normals"]
    return found


def measure(settings: Settings) -> Section:
    sizes = SIZES[:1] if settings.quick else SIZES
    with threads(settings.threads):
        updates = [measure_update(count, settings) for count in sizes]
        normals = [measure_normals(sizes[-1], settings)]
    notes = [
        f"Ours does more than Adam: ℓ1, Gaussian noise, and the list of the dead (1 in {DEAD_SHARE:,}); torch's Adam "
        "only moves the parameters. Both count their Python."
    ]
    tables = [Table("Update", updates), Table("Normal random numbers", normals)]
    return Section("update", "Update of a step", tables, notes=notes)
