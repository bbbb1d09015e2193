"""Whole stretches of training in one native call, for plain stacks (``stack.py`` says which).

The same arithmetic and the same random numbers as the module path, on the same tensors: parameters, wiring, and the
optimiser's own state, which afterwards are what ordinary training would have left, up to rounding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from wirebound import schedule
from wirebound.engine.fused_skip import take
from wirebound.engine.modules import count_active, never
from wirebound.engine.stack import StackLayer, read_stack, why_not_fused
from wirebound.engine.window import StepWindow, mean
from wirebound.methods import DeepR, Method
from wirebound.methods.langevin import pull_and_push
from wirebound.methods.method import WiringMethod
from wirebound.nn.linear import SparseLinear
from wirebound.nn.sparse_layer import wirings
from wirebound.ops import library, structs
from wirebound.ops.faults import raise_fault
from wirebound.ops.rule import RuleKind
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.wiring import WiringError

__all__ = ["FusedEngine", "why_not_fused"]

# A stretch is one native call, in which Python sees no signal: at most so many steps, and about a second.
_LONGEST_STEPS, _LONGEST_WORK = 1000, 1e9
_CROSS_ENTROPY, _MEAN_SQUARE = 0, 1


class FusedEngine:
    """Takes steps in the native library, on one thread.

    Args:
        model: a plain stack that ``why_not_fused`` accepts.
        method: ``DeepR``, ``Fixed`` or ``Dense`` of that model.
        x: training inputs, float32 or uint8, [examples, features]; the network sees ``scale * x``.
        y: int64 labels for softmax cross-entropy, or float32 targets for the mean square.
    """

    name = "fused"

    def __init__(self, model: nn.Module, method: Method, x: Tensor, y: Tensor, scale: float = 1.0) -> None:
        reason = why_not_fused(model, method)
        if reason:
            raise ValueError(f"this training cannot be fused: {reason}")
        stack = read_stack(model)
        assert not isinstance(stack, str)
        self.stack: list[StackLayer] = stack
        self.model, self.method = model, method
        self.on_nan, self.skips = "stop", 0
        self.x = x.reshape(len(x), -1).contiguous()
        self.y = y.contiguous()
        self.scale = scale
        self._check_data()
        self.wirings = wirings(model)
        # Only SGD, Adam and AdamW are accepted, for which the adapter knows the rule and makes torch's state.
        self.adapter = method.adapter if isinstance(method, DeepR) else OptimizerAdapter(method.optimizer, self.wirings)

    def _check_data(self) -> None:
        first, last = self.stack[0].linear, self.stack[-1].linear
        if self.x.dtype not in (torch.float32, torch.uint8):
            raise ValueError(f"the dtype of x (={self.x.dtype}) must be float32 or uint8")
        if self.x.shape[1] != first.in_features:
            raise ValueError(f"x has {self.x.shape[1]} features, the first layer takes {first.in_features}")
        if len(self.x) != len(self.y):
            raise ValueError(f"x has {len(self.x)} examples, y has {len(self.y)}")
        if self.y.dtype == torch.int64:
            if self.y.dim() != 1 or (len(self.y) and not 0 <= int(self.y.min()) <= int(self.y.max()) < last.out_features):
                raise ValueError(f"labels must be one number in [0, {last.out_features}) for each example")
        elif self.y.dtype != torch.float32 or self.y.shape[1:] != (last.out_features,):
            raise ValueError(f"targets must be float32 of shape [examples, {last.out_features}]")

    def epoch(
        self, order: Tensor, lrs: Sequence[float], batch_size: int, window: int, start: int = 0, pause: Callable[[], bool] = never
    ) -> Iterator[StepWindow]:
        """One pass over ``order`` in batches; see ``Engine``.

        The kernels choose how they sum at the start of each call, by what the wiring looks like then. So stretches end
        at places that follow from the settings alone, and ``pause`` has no say.
        """
        if len(order) and not 0 <= int(order.min()) <= int(order.max()) < len(self.x):
            raise ValueError("order must hold numbers of examples")
        stretch = self._stretch(batch_size)
        while start < len(lrs):
            within = start % window
            stop = min(start - within + min((within // stretch + 1) * stretch, window), len(lrs))
            yield take(self, order[start * batch_size : stop * batch_size], list(lrs[start:stop]), batch_size)
            start = stop

    def _stretch(self, batch_size: int) -> int:
        work = batch_size * sum(p.numel() for layer in self.stack for p in layer.linear.parameters())
        return max(1, min(_LONGEST_STEPS, int(_LONGEST_WORK // max(1, work))))

    def batch(self, examples: Tensor) -> Tensor:
        """Inputs as the network sees them."""
        return self.x[examples].to(torch.float32) * self.scale

    def steps(self, order: Tensor, lrs: list[float], batch_size: int) -> tuple[StepWindow, int, float]:
        """Steps in one native call: (those taken, status, the loss of the step at which it stopped)."""
        method, steps = self.method, len(lrs)
        if isinstance(method, WiringMethod):
            method.may_step()
        group = method.optimizer.param_groups[0]
        sizes = [min(batch_size, len(order) - i * batch_size) for i in range(steps)]
        losses = torch.zeros(steps, dtype=torch.float64)
        born = torch.zeros(steps, max(1, len(method.shapes)), dtype=torch.int64)
        # Everything that the native call points into must stay alive until it returns.
        alive: list[Any] = [order.contiguous(), torch.tensor(lrs, dtype=torch.float64), torch.tensor(sizes)]
        rule = self._rule(group)
        layers = (structs.FusedLayer * len(self.stack))(*(self._layer(layer) for layer in self.stack))
        nets = (structs.FusedWiring * len(self.wirings))(*(self._wiring(i, lrs, alive) for i in range(len(self.wirings))))
        labels = self.y.dtype == torch.int64
        targets = {"labels": self.y.data_ptr()} if labels else {"targets": self.y.data_ptr(), "target_stride": self.y.stride(0)}
        run = structs.FusedRun(
            steps=steps, first_step=method.steps + 1, rule=rule, lr=alive[1].data_ptr(), order=alive[0].data_ptr(),
            n_layers=len(layers), layers=ctypes.addressof(layers), n_wirings=len(nets), wirings=ctypes.addressof(nets),
            x=self.x.data_ptr(), x_stride=self.x.stride(0), x_is_bytes=self.x.dtype == torch.uint8, scale=self.scale, shift=0.0,
            loss_kind=_CROSS_ENTROPY if labels else _MEAN_SQUARE, **targets, batch=alive[2].data_ptr(), loss=losses.data_ptr(),
            born=born.data_ptr() if self.wirings else None, born_stride=born.shape[1],
        )  # fmt: skip
        status = ctypes.c_int32()
        native = library.load()
        assert native is not None
        self._mark()
        taken = native.wb_fused_steps_f32(ctypes.byref(run), ctypes.byref(status))
        if taken < 0:
            raise_fault(taken)
        self._took(taken, lrs)
        active = count_active(self.model, method)
        if self.wirings and not status.value and active != sum(w.budget for w in self.wirings):
            raise WiringError(f"{active} connections are active after step {method.steps}, not K")
        newborns = born[:taken].sum(0).tolist() if self.wirings else [0] * len(method.shapes)
        done = losses[:taken].tolist()
        window = StepWindow(method.steps - taken + 1, method.steps, mean(done), active, active, newborns, done)
        return window, status.value, float(losses[min(taken, steps - 1)])

    def _rule(self, group: dict[str, Any]) -> structs.Rule:
        optimizer = self.method.optimizer
        if self.adapter.kind is RuleKind.SGD:
            parameters = [p for g in optimizer.param_groups for p in g["params"]]
            fresh = all(optimizer.state[p].get("momentum_buffer") is None for p in parameters)
            own = {name: group[name] for name in ("nesterov", "maximize", "momentum", "dampening")}
            return structs.Rule(kind=RuleKind.SGD, fresh=bool(group["momentum"]) and fresh, **own)
        (beta1, beta2), decoupled = group["betas"], group.get("decoupled_weight_decay", isinstance(optimizer, torch.optim.AdamW))
        own = {"beta1": beta1, "beta2": beta2, "eps": group["eps"], "maximize": group["maximize"]}
        return structs.Rule(kind=RuleKind.ADAM, decoupled=decoupled, **own)

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        """Addresses of torch's own state of a parameter, made as torch makes it if there is none."""
        group = next(g for g in self.method.optimizer.param_groups if any(p is parameter for p in g["params"]))
        state = self.adapter.made_state(parameter, group)
        named = {"momentum_buffer": "moment1", "exp_avg": "moment1", "exp_avg_sq": "moment2", "max_exp_avg_sq": "moment2_max"}
        found = {ours: state[name].data_ptr() for name, ours in named.items() if state.get(name) is not None}
        return {"weight_decay": group["weight_decay"], **found}

    def _parameter(self, parameter: Tensor | None) -> structs.Parameter:
        if parameter is None:
            return structs.Parameter()
        found, state = self._state(parameter), self.method.optimizer.state[parameter]
        step = int(state["step"]) if self.adapter.kind is RuleKind.ADAM else self.method.steps
        return structs.Parameter(data=parameter.data_ptr(), step=step, **found)

    def _layer(self, layer: StackLayer) -> structs.FusedLayer:
        linear, sparse = layer.linear, isinstance(layer.linear, SparseLinear)
        wiring = next((i for i, w in enumerate(self.wirings) if sparse and w is linear.wiring), -1)
        weight = self._parameter(None if sparse else linear.weight)
        return structs.FusedLayer(
            n_in=linear.in_features, n_out=linear.out_features, activation=layer.activation, wiring=wiring,
            layer_id=linear.layer_id if isinstance(linear, SparseLinear) else 0, weight=weight, bias=self._parameter(linear.bias),
        )  # fmt: skip

    def _wiring(self, number: int, lrs: list[float], alive: list[Any]) -> structs.FusedWiring:
        wiring = self.wirings[number]
        longs = ctypes.c_int64 * len(wiring.layers)
        n_in, n_out = longs(*wiring.geometry.n_in), longs(*wiring.geometry.n_out)
        alive += [n_in, n_out]
        found = self._state(wiring.theta)
        if isinstance(self.method, DeepR):
            rates, stride = self._rates(number, lrs)
            alive.append(rates)
            found |= {"shrink": rates[0].data_ptr(), "noise_std": rates[1].data_ptr(), "drift_stride": stride}
            found |= {"rewire_every": self.method.rewire_every, "bound": 1}
            shares = self.method.shares[number]
            if shares is not None:
                c_shares = (ctypes.c_double * len(shares))(*shares)
                alive.append(c_shares)
                found["shares"] = ctypes.addressof(c_shares)
            if self.adapter.born:
                found["born"] = self.adapter.born[number].data_ptr()
        return structs.FusedWiring(
            budget=wiring.budget, layers=len(wiring.layers), n_in=ctypes.addressof(n_in), n_out=ctypes.addressof(n_out),
            colptr=wiring.colptr.data_ptr(), packed_rows=wiring.packed_rows.data_ptr(), theta=wiring.theta.data_ptr(),
            clock=self._clock(number), seed=wiring.seed, index=wiring.index, **found,
        )  # fmt: skip

    def _clock(self, number: int) -> int:
        """How often Adam has moved the θ of a wiring."""
        step = self.method.optimizer.state[self.wirings[number].theta].get("step")
        return 0 if step is None else self.adapter.updates_before(number, int(step))

    def _rates(self, number: int, lrs: list[float]) -> tuple[Tensor, int]:
        """[2, steps, layers]: ηα and √(2ηT) of each step and layer; one step if they never change."""
        method = self.method
        assert isinstance(method, DeepR)
        first_layer = sum(len(w.layers) for w in self.wirings[:number])
        layers = range(first_layer, first_layer + len(self.wirings[number].layers))
        constant = len(set(lrs)) == 1 and not any(
            schedule.changes_with_step(rate) for i in layers for rate in (method.l1[i], method.temperature[i])
        )
        steps = enumerate(lrs[:1] if constant else lrs, method.steps + 1)
        pairs = [pull_and_push(method.l1[i], method.temperature[i], step, lr) for step, lr in steps for i in layers]
        return torch.tensor(pairs, dtype=torch.float64).t().contiguous(), 0 if constant else len(layers)

    def _mark(self) -> None:
        """Note what the native call is about to do behind torch's back: an interrupt may follow on it at once."""
        for group in self.method.optimizer.param_groups:
            for parameter in group["params"]:
                increment_version(parameter)
        for wiring in self.wirings:
            wiring.forget()

    def _took(self, steps: int, lrs: list[float]) -> None:
        """Count the steps that the native call has taken."""
        self.method.steps += steps
        for group in self.method.optimizer.param_groups:
            group["lr"] = lrs[-1]
            for parameter in group["params"]:
                state = self.method.optimizer.state[parameter]
                if "step" in state:
                    state["step"] += steps
        self.adapter.updates = [count + steps for count in self.adapter.updates]
