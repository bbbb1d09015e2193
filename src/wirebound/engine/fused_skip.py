"""What the fused path does when a step is not finite: stop with a reason, or leave the step out and go on."""

from __future__ import annotations

import copy
from typing import Any, Protocol

from torch import Tensor, nn

from wirebound.engine.diagnose import broken_parameter, where_not_finite
from wirebound.engine.modules import DivergedError, Engine, diverged, skip_step
from wirebound.engine.window import StepWindow, join
from wirebound.methods import Method

FINE, LOSS_NOT_FINITE, THETA_NOT_FINITE = 0, 1, 2


class Steps(Engine, Protocol):
    """The fused engine, as far as it is needed here."""

    model: nn.Module
    method: Method

    def steps(self, order: Tensor, lrs: list[float], batch_size: int) -> tuple[StepWindow, int, float]: ...

    def batch(self, examples: Tensor) -> Tensor: ...


def take(engine: Steps, order: Tensor, lrs: list[float], batch_size: int) -> StepWindow:
    """One stretch of steps, in one native call unless a step has to be left out."""
    model, method = engine.model, engine.method
    parts: list[StepWindow] = []
    at = 0
    while at < len(lrs):
        before = _state(method) if engine.on_nan == "skip" else None
        rest = order[at * batch_size :]
        window, status, loss = engine.steps(rest, lrs[at:], batch_size)
        taken = window.step_to - window.step_from + 1
        if status == THETA_NOT_FINITE:
            where = broken_parameter(model)
            if before is None:
                raise DivergedError(
                    f"a parameter is not finite after step {method.steps}: the gradient or the learning rate is too "
                    f"large; at fault: {where}"
                )
            # The update has spoilt the weights: go back, and take the steps before that one again.
            _restore(method, before)
            taken -= 1
            if taken:
                window, _, _ = engine.steps(rest[: taken * batch_size], lrs[at : at + taken], batch_size)
        elif status == LOSS_NOT_FINITE:
            where = where_not_finite(model, engine.batch(rest[taken * batch_size : (taken + 1) * batch_size]))
            if before is None:
                error = diverged(method.steps + 1, loss, lrs[at + taken], where)
                error.done = window if taken else None
                raise error
        if taken:
            parts.append(window)
            engine.skips = 0
        at += taken
        if status != FINE:
            try:
                parts.append(skip_step(engine, model, method, where))
            except DivergedError as error:
                error.done = join(parts) if parts else None
                raise
            at += 1
    return join(parts)


def _state(method: Method) -> tuple[Any, Any, Any]:
    return copy.deepcopy((method.model.state_dict(), method.optimizer.state_dict(), method.state_dict()))


def _restore(method: Method, state: tuple[Any, Any, Any]) -> None:
    method.model.load_state_dict(state[0])
    method.optimizer.load_state_dict(state[1])
    method.load_state_dict(state[2])
