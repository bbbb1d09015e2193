"""The optimiser and the method of a checkpoint: each state must look like what this very object would keep.

Kernels write to an optimiser's tensors, so shape, type and values are checked: torch's own against what they make in one
step on small parameters (a table of names would be right for one version of torch), others against what they have here.
"""

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound.checkpoint.container import CheckpointError, require
from wirebound.checkpoint.tree import check_like, check_numbers, described, leaves, listed
from wirebound.methods.attach import KEY
from wirebound.methods.average import AVERAGE, UPDATES
from wirebound.methods.deep_r import DeepR
from wirebound.methods.method import Method
from wirebound.methods.occurring import check_states

Groups = Sequence[Mapping[str, Any]]
MOST_STEPS = 1 << 62
_MOST_STEPS_WITH_AGES = (1 << 31) - 1  # steps of birth are kept as int32
# What each value must be, by the name under which methods keep it.
_RULES: dict[str, tuple[Callable[[Any], object], str]] = {
    "updates": (lambda n: _is_count(n, _MOST_STEPS_WITH_AGES), f"a number >= 0 and < {_MOST_STEPS_WITH_AGES}"),
    "signs": (lambda signs: (signs.abs() == 1).all(), "1 or -1"),
    "theta": (lambda theta: torch.isfinite(theta).all(), "finite"),
    "theta_min": (lambda floor: math.isfinite(floor) and floor < 0, "finite and < 0"),
    "seed": (lambda seed: _is_count(seed, 1 << 63), "in [0, 2^63)"),
    "second_moments": (lambda v: math.isfinite(v) and v >= 0, "finite and >= 0"),
}
# Keys that schedulers add to a group; the rest must be there on both sides.
_ADDED = {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"}
_COUNTS = (torch.float32, torch.float64)  # the types of a scalar, by torch's default type when it was made
# How a step is computed, not what it is: the plainest way does for small parameters.
_PLAINEST: dict[str, Any] = {"foreach": False, "fused": None, "capturable": False, "differentiable": False}
# Settings that make an optimiser keep more. They may have been on earlier in a training in which they are off now.
_SWITCHES: dict[str, Any] = {"momentum": 0.5, "amsgrad": True, "centered": True}


def _is_count(value: Any, end: int) -> bool:
    return type(value) is int and 0 <= value < end


def check_method_state(state: Any, method: Method) -> None:
    """Raise unless ``state`` is a state dict that this method may be given."""
    mine = method.state_dict()
    if isinstance(state, dict) and "updates" not in state:
        mine.pop("updates", None)  # a file from before counts were kept
    if isinstance(method, DeepR) and isinstance(state, dict):  # which layers have sparse inputs is not known beforehand
        try:
            check_states(method.occurring, state)
        except ValueError as error:
            raise CheckpointError(f"method/{error}") from None
        mine.pop("seen", None)
        state = {name: value for name, value in state.items() if name != "seen"}
    if isinstance(method, DeepR) and isinstance(state, dict) and bool(state.get("born")) > bool(mine["born"]):
        raise CheckpointError("method holds when connections were born: make it with newborn_moments='own', as it was kept")
    check_like(mine, state, "method")
    check_numbers(state, "method")
    check_steps(state.get("steps"), _MOST_STEPS_WITH_AGES if state.get("born") else MOST_STEPS)
    for name, (holds, rule) in _RULES.items():
        for place, value in leaves(state[name], f"method/{name}") if name in state else ():
            told = "" if isinstance(value, Tensor) else f" (={str(value)[:30]})"
            require(holds(value), f"{place}{told} must be {rule}")
    if isinstance(method, DeepR) and method.turnover is not None:
        for number, (price, own) in enumerate(zip(method.turnover.prices, state["turnover"], strict=True)):
            try:
                price.check_state(own)
            except ValueError as error:
                raise CheckpointError(f"method/turnover/{number}/{error}") from None
    # Births are dated by the updates of the optimiser, which may have begun before the method's steps.
    most = max([state["steps"], *state.get("updates", [])])
    for name, born in leaves(state.get("born", []), "method/born"):
        fits = not born.numel() or 0 <= int(born.min()) <= int(born.max()) <= most
        require(fits, f"{name} must be steps in [0, {most}]")
    if "highest" in state:  # the most connections of each layer were there at some time, those of all at one time
        layers, active = state["highest"]["layers"], state["highest"]["active"]
        for shape, count in zip(method.shapes, layers, strict=True):
            rule = f"method/highest of layer {shape.name!r} (={count}) must be in [0, {shape.possible}]"
            require(_is_count(count, shape.possible + 1), rule)
        least, most = max(layers, default=0), sum(layers)
        fits = type(active) is int and least <= active <= most
        require(fits, f"method/highest/active (={active}) must be in [{least}, {most}]")


def check_steps(steps: Any, end: int = MOST_STEPS) -> None:
    require(_is_count(steps, end), f"the method's steps (={str(steps)[:30]}) must be a number >= 0 and < {end}")


def check_optimizer_state(state: Any, optimizer: optim.Optimizer, thetas: Collection[nn.Parameter] = ()) -> None:
    """Raise unless ``state`` is a state dict that this optimiser may be given; ``thetas`` move with connections."""
    if not isinstance(state, dict) or set(state) - {KEY} != {"state", "param_groups"}:
        raise CheckpointError(f"the optimiser must have state and param_groups and nothing else, has {listed(state)}")
    require(isinstance(state["state"], dict), "the optimiser's state must be by parameter")
    mine, theirs = optimizer.state_dict()["param_groups"], state["param_groups"]
    fits = isinstance(theirs, list) and len(theirs) == len(mine)
    require(fits, f"the optimiser must have {len(mine)} parameter groups")
    for number, (here, there) in enumerate(zip(mine, theirs, strict=True)):
        _check_group(f"parameter group {number}", here, there)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    needed, from_the_start = _asked(optimizer, mine, theirs)
    moving = set() if isinstance(optimizer, optim.LBFGS) else {id(theta) for theta in thetas}
    for key, kept in state["state"].items():
        fits = _is_count(key, len(parameters)) and isinstance(kept, dict)
        require(fits, f"optimiser state {str(key)[:40]!r} must belong to one of {len(parameters)} parameters")
        name, parameter = f"optimiser state {key}", parameters[key]
        _check_average(name, kept, parameter)
        kept = {part: value for part, value in kept.items() if part not in (AVERAGE, UPDATES)}
        if needed is None:
            _check_foreign(name, kept, parameter, optimizer, moving=id(parameter) in moving)
        elif kept or from_the_start:  # nothing: no step with a gradient so far
            wanted = needed[key]
            if kept.keys() != wanted.keys():
                most = _made_by(optimizer, theirs, most=True)[0][key]
                optional = {"momentum_buffer"} if type(optimizer) is optim.SGD else set()  # made when it is first needed
                fits = wanted.keys() - optional <= kept.keys() <= most.keys() | wanted.keys()
                require(fits, f"{name} must hold {listed(wanted)}, holds {listed(kept)}")
                wanted = {**most, **wanted}
            for part, value in kept.items():
                if value is not None or part != "momentum_buffer" or type(optimizer) is not optim.SGD:
                    _check_kept(f"{name}/{part}", part, value, wanted[part])
    complete = not from_the_start or len(state["state"]) == len(parameters)
    require(complete, f"{type(optimizer).__name__} must have state of each of {len(parameters)} parameters")


def _check_group(name: str, mine: Mapping[str, Any], theirs: Any) -> None:
    require(isinstance(theirs, Mapping), f"{name} must be settings by name")
    both = {key for key in {*mine, *theirs} if key not in _ADDED or (key in mine and key in theirs)}
    here, there = ({key: group[key] for key in both if key in group} for group in (mine, theirs))
    check_like(here, there, name)
    check_numbers(theirs, name)
    require(there["params"] == here["params"], f"{name} must hold the same parameters as here")
    for key, value in theirs.items():
        known = mine.get(key) is not None or isinstance(value, bool | int | float | None)
        require(known, f"{name}/{key} must be a number or nothing, is {described(value)}")
    lr = theirs.get("lr")
    if isinstance(lr, int | float | Tensor):
        require(math.isfinite(lr) and lr >= 0, f"{name}/lr (={float(lr)}) must be a finite number >= 0")


def _check_average(name: str, kept: Mapping[str, Any], parameter: nn.Parameter) -> None:
    """``wb.WeightAverage`` keeps two pieces in whatever optimiser it is, so that they move with connections."""
    if not {AVERAGE, UPDATES} & kept.keys():
        return
    average, updates = kept.get(AVERAGE), kept.get(UPDATES)
    if not isinstance(average, Tensor) or average.shape != parameter.shape or not average.is_floating_point():
        raise CheckpointError(f"{name}/{AVERAGE} must be {described(parameter)}, is {described(average)}")
    require(torch.isfinite(average).all(), f"{name}/{AVERAGE} must be finite")
    require(updates and _is_count(updates, 1 << 62), f"{name}/{UPDATES} (={str(updates)[:30]}) must be a count >= 1")


def _asked(optimizer: optim.Optimizer, mine: Groups, theirs: Groups) -> tuple[list[dict[str, Any]] | None, bool]:
    """What the optimiser keeps with the settings of the file, which win as they do in torch; None if it cannot be asked."""
    kind = type(optimizer)  # only torch's own are asked: a step of anyone else's may do anything
    if not kind.__module__.startswith("torch.optim.") or kind in (optim.LBFGS, optim.SparseAdam):
        return None, False
    try:
        return _made_by(optimizer, theirs)
    except Exception as error:
        try:
            _made_by(optimizer, mine)
        except Exception:  # it cannot be asked here with any settings
            return None, False
        wrong = f"{type(error).__name__}: {str(error)[:80]}"
        raise CheckpointError(f"{kind.__name__} cannot make a step with its settings ({wrong})") from None


def _made_by(optimizer: optim.Optimizer, groups: Groups, *, most: bool = False) -> tuple[list[dict[str, Any]], bool]:
    """The state of each parameter after a step with these settings, or ``most`` that could be kept; and if it starts so."""
    kind, small, settings = type(optimizer), list[nn.Parameter](), list[dict[str, Any]]()
    for mine, theirs in zip(optimizer.param_groups, groups, strict=True):
        params = [nn.Parameter(torch.full([2] * p.dim(), 0.5, dtype=p.dtype)) for p in mine["params"]]
        own = {key: value for key, value in theirs.items() if key not in ("params", "param_names")}
        own |= {key: value for key, value in (_PLAINEST | (_SWITCHES if most else {})).items() if key in own}
        settings.append({**own, "params": params})
        small += params
    for parameter in small:
        parameter.grad = torch.full_like(parameter, 0.25)
    arguments = inspect.signature(kind).parameters
    defaults = {key: _PLAINEST.get(key, value) for key, value in optimizer.defaults.items() if key in arguments}
    twin = kind(settings, **defaults)
    from_the_start = all(twin.state.get(parameter) for parameter in small)
    # Past the wrapper of torch that calls the hooks which users have set for all optimisers: this is no step of theirs.
    step: Any = getattr(kind.step, "__wrapped__", kind.step)
    step(twin)
    real = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    pairs = [(twin.state.get(a, {}), a, b) for a, b in zip(small, real, strict=True)]
    return [{name: _sized(value, a, b) for name, value in kept.items()} for kept, a, b in pairs], from_the_start


def _sized(value: Any, small: nn.Parameter, real: nn.Parameter) -> Any:
    """How a piece of state would be for the real parameter, from how it is for the small one."""
    if not isinstance(value, Tensor):
        return value
    shape = value.shape
    if value.dim() == small.dim():  # else a scalar beside a parameter with dimensions
        shape = torch.Size(1 if here == 1 else there for here, there in zip(value.shape, real.shape, strict=True))
    return torch.empty(shape, dtype=value.dtype, device="meta")


def _check_kept(name: str, key: str, value: Any, wanted: Any) -> None:
    if not isinstance(wanted, Tensor):
        require(isinstance(value, bool | int | float | None), f"{name} must be a number, is {described(value)}")
        return
    types = _COUNTS if wanted.shape == () and wanted.dtype in _COUNTS else (wanted.dtype,)
    fits = isinstance(value, Tensor) and value.shape == wanted.shape and value.dtype in types
    require(fits, f"{name} must be {'a count' if key == 'step' else described(wanted)}, is {described(value)}")
    require(torch.isfinite(value).all(), f"{name} must be finite")
    if key == "step":
        most = _MOST_STEPS_WITH_AGES
        require(0 <= float(value) < most, f"{name} (={float(value)}) must be a count < {most}")


def _check_foreign(
    key: str, kept: Mapping[str, Any], parameter: nn.Parameter, optimizer: optim.Optimizer, *, moving: bool
) -> None:
    """The state of an optimiser that is not torch's: nested as it likes, of numbers that can belong to its parameter."""
    here, most = dict(leaves(optimizer.state.get(parameter, {}), key)), max(1, parameter.numel())
    if isinstance(optimizer, optim.LBFGS):
        most = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    for name, value in leaves(kept, key):
        check_numbers(value, name)
        if isinstance(value, Tensor):
            mine = here.get(name)
            fits = not isinstance(mine, Tensor) or mine.shape == value.shape
            require(fits, f"{name} must be {described(mine)}, is {described(value)}")
            of_element = value.numel() == 1 or value.shape == parameter.shape
            fits = value.numel() <= most and (of_element or not moving) and (not name.endswith("/step") or value.numel() == 1)
            require(fits, f"{name} must fit its parameter ({described(parameter)}), is {described(value)}")
