"""The update of a step against torch's Adam alone, its random numbers, and rewiring with Adam's state carried along."""

import copy
import ctypes
import dataclasses
from itertools import cycle

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops import library, philox, structs
from wirebound.ops.philox import Stream
from wirebound.ops.rule import DriftAndNoise, Rule, RuleKind, State
from wirebound.wiring import Wiring, copies

from . import contenders as ways
from .contenders import LinearProblem, LinearWorkload
from .contest import Call, Contender, Measurement, Section, Settings, Table, Wanted, WrongAnswerError, compete, threads

SIZES = (100_000, 1_000_000)
DEAD_SHARE = 1000  # one in so many θ is below 0 and is found dead in every call, or is replaced by rewiring
_LR = 1e-7  # so small that thousands of repeated calls leave θ where it is
_SHRINK, _NOISE = 1e-10, 1e-9
OURS = "ours, Adam + ℓ1 + noise + death"
BATCH = 32
MOST = Wanted(10, 10)  # per cent
SHARE_OF_PASS = "rewiring, % of forward + backward"
# (side of a square layer, K); the goal is judged on each, since no single layer stands for a K.
LAYERS = ((1024, 100_000), (10_000, 100_000), (10_000, 1_000_000), (4096, 1_000_000), (100_000, 1_000_000))


class AdamNumbers:
    """K parameters with gradient and Adam state, as DeepR keeps it by default: without ages."""

    def __init__(self, count: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.theta = 0.5 + torch.rand(count, generator=generator)
        self.theta[::DEAD_SHARE] = -0.5
        self.grad = torch.randn(count, generator=generator)
        self.state = State(exp_avg=torch.zeros(count), exp_avg_sq=torch.zeros(count))
        self.steps = 0

    def update(self, shrink: float = _SHRINK, noise: float = _NOISE, *, sign_bound: bool = True) -> Tensor:
        """One step; the indices of the dead."""
        self.steps += 1
        state = dataclasses.replace(self.state, clock=self.steps)
        drifts = [DriftAndNoise(0, self.theta.numel(), shrink, noise)]
        how = {"seed": 1, "stream": Stream.NOISE, "step": self.steps, "sign_bound": sign_bound, "clamp": False}
        return ops.backend_of(self.theta).update_(
            self.theta, self.grad, Rule(RuleKind.ADAM, lr=_LR), state, drifts, **how  # type: ignore[arg-type]
        )


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
    found = compete(f"K {count:,}", contenders, settings)
    for name in ("torch Adam", "torch Adam, fused"):
        found.numbers[f"{name} ÷ ours"] = found.times[name].best / found.times[OURS].best
    found.numbers["ours, ns a connection"] = 1e9 * found.times[OURS].best / count
    return found


def native_normals(out: Tensor, seed: int = 0) -> Call:
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


class Rewired:
    """A wiring with what DeepR carries along for Adam by default, in which other connections die in every call."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring, count = copy.deepcopy(wiring), wiring.budget
        self.moments = [torch.zeros(count), torch.zeros(count)]
        n_dead, cpu = max(1, count // DEAD_SHARE), torch.device("cpu")
        self.dead = [philox.sample_sorted(count, n_dead, 0, int(Stream.OTHER), i, cpu) for i in range(16)]
        self._next = cycle(self.dead)
        self.steps = 0

    def arrays(self) -> list[Tensor]:
        return [self.wiring.theta.detach(), *self.moments]

    def bare(self) -> Call:
        """The kernel alone, on arguments that were made before."""
        native = library.load()
        assert native is not None
        wiring, one, moved = self.wiring, ctypes.c_int64 * 1, self.arrays()
        copies.go_alone(wiring)  # a copy whose arrays move without its knowing
        carried = (structs.Carried * len(moved))()
        for entry, tensor in zip(carried, moved, strict=True):
            entry.data, entry.size, entry.fill = tensor.data_ptr(), tensor.element_size(), 0
        n_in, n_out, born, died = one(*wiring.geometry.n_in), one(*wiring.geometry.n_out), one(), one()
        arrays = (n_in, n_out, wiring.colptr.data_ptr(), wiring.packed_rows.data_ptr(), carried, len(moved))
        before = (wiring.budget, 1, *arrays)
        seed, index, threads = wiring.seed, wiring.index, torch.get_num_threads()

        def run() -> None:
            self.steps += 1
            dead = next(self._next)
            after = (seed, index, self.steps, None, born, died, threads)
            native.wb_rewire(*before, dead.data_ptr(), dead.numel(), *after)

        return run

    def rewire(self) -> None:
        self.steps += 1
        self.wiring.rewire_(next(self._next), [(moment, 0.0) for moment in self.moments], self.steps, None)


def check_rewire(wiring: Wiring) -> None:
    """Kernel and reference give the same wiring, to the bit."""
    results = []
    for implementation in ("reference", "native"):
        mine = Rewired(wiring)
        with ops.use(implementation):
            mine.rewire()
            mine.rewire()
        mine.wiring.check()
        results.append([mine.wiring.packed_rows, mine.wiring.colptr, *mine.arrays()])
    if not all(torch.equal(a, b) for a, b in zip(*results, strict=True)):
        raise WrongAnswerError("rewire: the kernel differs from the reference")


def measure_rewire(side: int, budget: int, settings: Settings) -> Measurement:
    """Forward + backward and rewiring of the same layer, in turns."""
    density = budget / side**2
    problem = LinearProblem(LinearWorkload(side, side, density, BATCH), budget)
    check_rewire(problem.wiring)
    mine, bare = Rewired(problem.wiring), Rewired(problem.wiring)
    contenders = [
        Contender(f"forward + backward, B {BATCH}", ways.bare(problem).run),
        Contender("rewiring", bare.bare() if ops.native_available() else mine.rewire),
        Contender("rewiring, through Python", mine.rewire),
    ]
    found = compete(f"K {budget:,}, {side:,}×{side:,}, {100 * density:.2g} %", contenders, settings)
    mine.wiring.check()
    bare.wiring.check()
    both, rewiring, through = (timing.best for timing in found.times.values())
    found.numbers[SHARE_OF_PASS] = 100 * rewiring / both
    found.numbers["through Python, %"] = 100 * through / both
    found.numbers["ns a replaced connection"] = 1e9 * rewiring / mine.dead[0].numel()
    return found


def measure_rewiring(settings: Settings) -> Section:
    with threads(settings.threads):
        found = [measure_rewire(*layer, settings) for layer in (LAYERS[:1] if settings.quick else LAYERS)]
    subject = f"rewiring 1 in {DEAD_SHARE:,} incl. Adam state, {{}}: of forward + backward"
    judged = [(subject.format(m.workload), MOST, m.numbers[SHARE_OF_PASS], "%", True) for m in found]
    goals = [goal for one in judged for goal in settings.goal(*one)]
    notes = [
        f"1 in {DEAD_SHARE:,} connections dies and is reborn elsewhere; θ and two moments move along, as "
        "by default. "
        "Rewiring and forward + backward are bare kernels, and the goal is judged on these; through Python is rewiring "
        "as DeepR calls it. The pass of a layer that fits the cache is cheap, so its share is highest."
    ]
    return Section("rewire", "Rewiring", [Table("Rewiring", found)], goals, notes)
