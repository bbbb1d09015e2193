"""Whole stretches of training in one native call, for plain stacks (``stack.py`` says which).

The same arithmetic and random numbers as the module path, on the same parameters, wiring and optimiser state, which
afterwards are what ordinary training would have left, up to rounding.
"""

import copy
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from wirebound import schedule
from wirebound.engine import modules
from wirebound.engine.modules import DivergedError, never
from wirebound.engine.rows import SparseRows, first_layer, note_columns
from wirebound.engine.stack import read_stack, why_not_fused
from wirebound.engine.window import StepWindow, join, mean
from wirebound.methods import DeepR, Method
from wirebound.methods.deep_r import pull_and_push
from wirebound.methods.method import WiringMethod
from wirebound.nn.dropout import Dropout
from wirebound.nn.linear import SparseLinear
from wirebound.nn.sparse_layer import wirings
from wirebound.ops.native.calls import c_shapes
from wirebound.ops.native.stack import (
    CROSS_ENTROPY,
    MEAN_SQUARE,
    SOFT_CROSS_ENTROPY,
    count_active,
    fused_steps,
    layer_bounds,
)
from wirebound.ops.rule import RuleKind
from wirebound.ops.structs import array_of
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.wiring import Wiring, WiringError

__all__ = ["FusedEngine", "why_not_fused"]

# A stretch is one native call, in which Python sees no signal: at most so many steps, and about a second.
_LONGEST_STEPS, _LONGEST_WORK = 1000, 1e9
_FINE, _LOSS_NOT_FINITE, _THETA_NOT_FINITE = 0, 1, 2
_MOMENTS = {"momentum_buffer": "moment1", "exp_avg": "moment1", "exp_avg_sq": "moment2", "max_exp_avg_sq": "moment2_max"}


class FusedEngine:
    """Takes steps in the native library, on one thread, for what ``why_not_fused`` accepts.

    ``x``: float32 or uint8, [examples, features], of which the network sees ``scale * x``; or sparse rows, for which the
    first layer costs as many operations as nonzeros meet connections. ``y``: int64 labels for softmax cross-entropy, or
    float32 targets for the mean square, or with ``soft`` probabilities of the classes for cross-entropy.
    """

    name = "fused"

    def __init__(
        self, model: nn.Module, method: Method, x: Tensor | SparseRows, y: Tensor, scale: float = 1.0, soft: bool = False
    ) -> None:
        if reason := why_not_fused(model, method, isinstance(x, SparseRows)):
            raise ValueError(f"this training cannot be fused: {reason}")
        stack = read_stack(model)
        assert not isinstance(stack, str)
        self.stack, self.model, self.method, self.scale, self.soft = stack, model, method, scale, soft
        self.on_nan, self.skips = "stop", 0
        self.x = x if isinstance(x, SparseRows) else x.reshape(len(x), -1).contiguous()
        self.y = y.contiguous()
        self._check_data(stack[0][0].in_features, stack[-1][0].out_features)
        self.wirings = wirings(model)
        if isinstance(x, SparseRows):
            note_columns(first_layer(model), x.occurring())
        # Only SGD, Adam and AdamW are accepted, for which the adapter knows the rule and makes torch's state.
        self.adapter = method.adapter if isinstance(method, DeepR) else OptimizerAdapter(method.optimizer, self.wirings)

    def _check_data(self, n_in: int, n_out: int) -> None:
        x, y = self.x, self.y
        if isinstance(x, SparseRows):
            if self.stack[0].dropout is not None:
                raise ValueError("dropout of the inputs is not for sparse rows: start the model with a linear layer")
        elif x.dtype not in (torch.float32, torch.uint8):
            raise ValueError(f"the dtype of x (={x.dtype}) must be float32 or uint8")
        if x.shape[1] != n_in:
            raise ValueError(f"x has {x.shape[1]} features, the first layer takes {n_in}")
        if len(x) != len(y):
            raise ValueError(f"x has {len(x)} examples, y has {len(y)}")
        if y.dtype == torch.int64:
            if y.dim() != 1 or (len(y) and not 0 <= int(y.min()) <= int(y.max()) < n_out):
                raise ValueError(f"labels must be one number in [0, {n_out}) for each example")
        elif y.dtype != torch.float32 or y.shape[1:] != (n_out,):
            raise ValueError(f"targets must be float32 of shape [examples, {n_out}]")

    def epoch(
        self, order: Tensor, lrs: Sequence[float], batch_size: int, window: int, start: int = 0, pause: Callable[[], bool] = never
    ) -> Iterator[StepWindow]:
        """One pass over ``order`` in batches; see ``Engine``.

        The kernels choose how they sum at the start of each call, by what the wiring looks like then. So stretches end
        at places that follow from the settings alone, and ``pause`` has no say.
        """
        if len(order):
            least, most = map(int, order.aminmax())
            if not 0 <= least <= most < len(self.x):
                raise ValueError("order must hold numbers of examples")
        work = self._work(batch_size)
        stretch = max(1, min(_LONGEST_STEPS, int(_LONGEST_WORK // max(1, work))))
        while start < len(lrs):
            within = start % window
            stop = min(start - within + min((within // stretch + 1) * stretch, window), len(lrs))
            yield self._stretch(order[start * batch_size : stop * batch_size], list(lrs[start:stop]), batch_size)
            start = stop

    def _work(self, batch_size: int) -> int:
        """About how many operations a step takes."""
        each = [sum(p.numel() for p in linear.parameters()) for linear, *_ in self.stack]
        if not isinstance(self.x, SparseRows):
            return batch_size * sum(each)
        first, nonzeros = self.stack[0].linear, self.x.nonzeros // max(1, len(self.x)) + 1
        # Once a step, the rewiring and the update go through all connections and columns.
        return batch_size * (sum(each[1:]) + nonzeros * first.out_features) + 10 * (sum(each) + first.in_features)

    def _stretch(self, order: Tensor, lrs: list[float], batch_size: int) -> StepWindow:
        """One stretch, in pieces between which the method looks at what has come of its rates."""
        method, parts, at = self.method, list[StepWindow](), 0
        while at < len(lrs):
            steps = len(lrs) - at
            if isinstance(method, DeepR):
                steps = int(min(steps, method.next_look(method.steps) - method.steps))
            try:
                part = self._take(order[at * batch_size : (at + steps) * batch_size], lrs[at : at + steps], batch_size)
            except DivergedError as error:
                done = [*parts, *([] if error.done is None else [error.done])]
                error.done = join(done) if done else None
                raise
            if isinstance(method, DeepR):
                method.note(method.steps, part.newborns)
            parts.append(part)
            at += steps
        return join(parts)

    def _take(self, order: Tensor, lrs: list[float], batch_size: int) -> StepWindow:
        """Some steps, in one native call unless one has to be left out because it is not finite."""
        model, method = self.model, self.method
        keepers: tuple[Any, ...] = (method.model, method.optimizer, method)
        parts: list[StepWindow] = []
        at = 0
        while at < len(lrs):
            before = copy.deepcopy([keeper.state_dict() for keeper in keepers]) if self.on_nan == "skip" else None
            rest = order[at * batch_size :]
            window, status, loss = self._steps(rest, lrs[at:], batch_size)
            taken = window.step_to - window.step_from + 1
            if status == _THETA_NOT_FINITE:
                where = modules.broken_parameter(model)
                if before is None:
                    why = "the gradient or the learning rate is too large"
                    raise DivergedError(f"a parameter is not finite after step {method.steps}: {why}; at fault: {where}")
                # The update has spoilt the weights: go back, and take the steps before that one again.
                for keeper, state in zip(keepers, before, strict=True):
                    keeper.load_state_dict(state)
                taken -= 1
                if taken:
                    window, _, _ = self._steps(rest[: taken * batch_size], lrs[at : at + taken], batch_size)
            elif status == _LOSS_NOT_FINITE:
                failed = rest[taken * batch_size : (taken + 1) * batch_size]
                x = self.x[failed]
                inputs = x if isinstance(self.x, SparseRows) else x.to(torch.float32) * self.scale
                where = modules.where_not_finite(model, inputs)
                if before is None:
                    error = modules.diverged(method.steps + 1, loss, lrs[at + taken], where)
                    error.done = window if taken else None
                    raise error
            if taken:
                parts.append(window)
                self.skips = 0
            at += taken
            if status != _FINE:
                try:
                    parts.append(modules.skip_step(self, model, method, where))
                except DivergedError as error:
                    error.done = join(parts) if parts else None
                    raise
                at += 1
        return join(parts)

    def _steps(self, order: Tensor, lrs: list[float], batch_size: int) -> tuple[StepWindow, int, float]:
        """Steps in one native call: (those taken, status, the loss of the step at which it stopped)."""
        method, steps, optimizer = self.method, len(lrs), self.method.optimizer
        if isinstance(method, WiringMethod):
            method.may_step()
        rule = self._rule()  # before the state of new parameters is made
        layers = [self._layer(*layer) for layer in self.stack]
        nets = [self._wiring(i, lrs) for i in range(len(self.wirings))]
        examples, width = len(order), max(1, len(method.shapes))
        full, rest = divmod(examples, batch_size)
        sizes = array_of(ctypes.c_int64, steps)(*([batch_size] * full + [rest])[:steps])
        losses, born = array_of(ctypes.c_double, steps)(), array_of(ctypes.c_int64, steps * width)()
        run = {
            "steps": steps, "first_step": method.steps + 1, "rule": rule, "lr": _doubles(lrs),
            "order": order.contiguous(), "batch": sizes, "scale": self.scale,
            "loss": losses, "born": born if nets else None, "born_stride": width,
        }  # fmt: skip
        counted: Any = ()  # connections that are active after each step, where counting them is little of it
        if isinstance(self.x, SparseRows):
            run |= {"row_starts": self.x.starts, "row_columns": self.x.columns, "row_values": self.x.values}
            if self.wirings:
                run["active"] = counted = array_of(ctypes.c_int64, steps)()
                run["judged"] = judged = array_of(ctypes.c_int64, steps)()
        else:
            run |= {"x": self.x, "x_stride": self.x.stride(0), "x_is_bytes": self.x.dtype == torch.uint8}
        if self.y.dtype == torch.int64:
            run |= {"loss_kind": CROSS_ENTROPY, "labels": self.y}
        else:
            kind = SOFT_CROSS_ENTROPY if self.soft else MEAN_SQUARE
            run |= {"loss_kind": kind, "targets": self.y, "target_stride": self.y.stride(0)}
        # The native call writes behind torch's back, and an interrupt may follow on it at once: note it before.
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            increment_version(parameter)
        for wiring in self.wirings:
            wiring.changing()
        taken, status = fused_steps(layers, nets, run)
        for wiring in self.wirings:
            wiring.starts_at(layer_bounds(wiring))
        method.steps += taken
        for dropout in (layer.dropout for layer in self.stack if layer.dropout is not None):
            dropout.calls += taken
        for group in optimizer.param_groups:
            group["lr"] = lrs[-1]
            for state in (optimizer.state[parameter] for parameter in group["params"]):
                if "step" in state:
                    state["step"] += taken
        self.adapter.updates = [count + taken for count in self.adapter.updates]
        if counted and taken and isinstance(method, DeepR):
            self._note_judged(method, judged[taken - 1])
        active = sum(map(_active, self.wirings)) if self.wirings else sum(method.layer_active())
        least, most = min([active, *counted[:taken]]), max([active, *counted[:taken]])
        if nets and not status and not least == most == sum(w.budget for w in self.wirings):
            raise WiringError(f"{least} to {most} connections are active up to step {method.steps}, not K")
        newborns = [sum(born[i : taken * width : width]) for i in range(len(method.shapes))]
        done = losses[:taken]
        window = StepWindow(method.steps - taken + 1, method.steps, mean(done), least, most, newborns, done)
        return window, status, losses[min(taken, steps - 1)]

    def _note_judged(self, method: DeepR, judged: int) -> None:
        """Which share of the first layer's connections the last step judged; the automatic ℓ1 goes by it."""
        first = first_layer(self.model)
        if first is not None and (lazy := method.lazy_layers(first.wiring)) is not None:
            shares = [1.0] * len(lazy)
            shares[first.layer_id] = judged / max(1, first.wiring.layer_places[first.layer_id])
            method.judged = {id(first.wiring): shares}

    # What ``fused_steps`` takes, by the names of csrc/wirebound.h.

    def _rule(self) -> dict[str, Any]:
        """The rule of all parameters; the learning rate comes with each step, the weight decay with each parameter."""
        optimizer, own, group = self.method.optimizer, self.adapter.own, self.method.optimizer.param_groups[0]
        parameters = (p for g in optimizer.param_groups for p in g["params"])
        fresh = all(own.is_fresh(group, optimizer.state.get(p, {})) for p in parameters)
        return {**vars(own.rule(group, 0.0, fresh)), "weight_decay": 0.0}

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        """Torch's own state of a parameter, made as torch makes it if there is none."""
        group = next(g for g in self.method.optimizer.param_groups if any(p is parameter for p in g["params"]))
        state = self.adapter.made_state(parameter, group)
        found = {ours: state[name] for name, ours in _MOMENTS.items() if state.get(name) is not None}
        return {"weight_decay": group["weight_decay"], **found}

    def _parameter(self, parameter: Tensor | None) -> dict[str, Any]:
        if parameter is None:
            return {}
        found, state = self._state(parameter), self.method.optimizer.state[parameter]
        step = int(state["step"]) if self.adapter.kind is RuleKind.ADAM else self.method.steps
        return {"data": parameter, "step": step, **found}

    def _layer(self, linear: SparseLinear | nn.Linear, activation: int, dropout: Dropout | None) -> dict[str, Any]:
        own: dict[str, Any] = {"wiring": -1}
        if isinstance(linear, SparseLinear):
            wiring = next(i for i, w in enumerate(self.wirings) if w is linear.wiring)
            own = {"wiring": wiring, "layer_id": linear.layer_id}
        else:
            own["weight"] = self._parameter(linear.weight)
        sizes = {"n_in": linear.in_features, "n_out": linear.out_features, "activation": activation}
        if dropout is not None:
            own |= {"dropout": dropout.p, "dropout_seed": dropout.seed, "dropout_index": dropout.index}
            own["dropout_calls"] = int(dropout.calls)
        return {**sizes, **own, "bias": self._parameter(linear.bias)}

    def _wiring(self, number: int, lrs: list[float]) -> dict[str, Any]:
        wiring = self.wirings[number]
        found = self._state(wiring.theta)
        updates = self.method.optimizer.state[wiring.theta].get("step")  # how often Adam has moved its θ
        found["clock"] = 0 if updates is None else self.adapter.updates_before(number, int(updates))
        if isinstance(self.method, DeepR):
            shares = self.method.shares[number]
            found |= self._rates(self.method, number, lrs) | {"rewire_every": self.method.rewire_every, "bound": 1}
            first = sum(len(w.layers) for w in self.wirings[:number])
            found["second_moment"] = _doubles(self.method.second_moments[first : first + len(wiring.layers)])
        rates = wiring.layer_rates
        found |= {"lr_factor": _doubles(rates.lr), "decay_factor": _doubles(rates.weight_decay)}
        if isinstance(self.method, DeepR):
            if (lazy := self.method.lazy_layers(wiring)) is not None:
                found["lazy"] = array_of(ctypes.c_int32, len(lazy))(*lazy)
            found["shares"] = None if shares is None else _doubles(shares)
            if (lazy := self.method.lazy_layers(wiring)) is not None:
                found["lazy"] = array_of(ctypes.c_int32, len(lazy))(*lazy)
            found["born"] = self.adapter.born[number] if self.adapter.born else None
        _, n_in, n_out = c_shapes(wiring.geometry)
        return {
            "budget": wiring.budget, "layers": len(wiring.layers), "n_in": n_in, "n_out": n_out, "colptr": wiring.colptr,
            "packed_rows": wiring.packed_rows, "theta": wiring.theta, "seed": wiring.seed, "index": wiring.index, **found,
        }  # fmt: skip

    def _rates(self, method: DeepR, number: int, lrs: list[float]) -> dict[str, Any]:
        """[steps, layers]: ηα and √(2ηT) of each step and layer; one step if they never change."""
        wiring, first = self.wirings[number], sum(len(w.layers) for w in self.wirings[:number])
        layers = range(first, first + len(wiring.layers))
        rates = (rate for i in layers for rate in (method.l1[i], method.temperature[i]))
        factors, step = wiring.layer_rates.lr, method.steps + 1
        if lrs.count(lrs[0]) == len(lrs) and not any(map(schedule.changes_with_step, rates)):
            own = zip(layers, factors, strict=True)
            each = [pull_and_push(method.l1[i], method.temperature[i], step, lrs[0] * factor) for i, factor in own]
            pull, push = map(_doubles, zip(*each, strict=True))
            return {"shrink": pull, "noise_std": push, "drift_stride": 0}
        lr = torch.tensor(lrs, dtype=torch.float64)
        etas = [(i, lr * factor) for i, factor in zip(layers, factors, strict=True)]
        pulls = [eta * schedule.over("l1", method.l1[i], step, eta) for i, eta in etas]
        pushes = [(2 * (eta * schedule.over("temperature", method.temperature[i], step, eta))).sqrt() for i, eta in etas]
        return {"shrink": torch.stack(pulls, 1), "noise_std": torch.stack(pushes, 1), "drift_stride": len(layers)}


def _active(wiring: Wiring) -> int:
    return count_active(wiring.theta) if wiring.sign_bound and wiring.alive is None else wiring.active


def _doubles(values: Sequence[float]) -> Any:
    """Numbers as the kernels read them: of so few, torch would take longer to make a tensor."""
    return array_of(ctypes.c_double, len(values))(*values)
