"""Methods that grow by the gradient of dormant connections: the backward pass before such a step leaves its sources."""

from collections.abc import Sequence
from typing import Any

from wirebound.methods.method import WiringMethod
from wirebound.wiring import GradientSource, Wiring


class Watching(WiringMethod):
    """A method that knows one step ahead whether it will need the gradient of dormant connections."""

    _steps = 0

    def wants_sources(self, step: int) -> bool:
        """Whether this step needs the gradient of dormant connections."""
        raise NotImplementedError

    @property
    def steps(self) -> int:
        """Steps taken so far. Whoever sets it decides what the next backward pass has to leave behind."""
        return self._steps

    @steps.setter
    def steps(self, value: int) -> None:
        self._steps = value
        wanted = self.wants_sources(value + 1)
        for wiring in self.wirings:
            if wanted or wiring.watch is not None:  # nn.Module takes its time to set an attribute
                wiring.watch = {} if wanted else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._attached:
            self.steps = self._steps  # copied wirings leave out what theirs was watched for

    def forget_gradients(self) -> None:
        for wiring in self.wirings:  # gradients that are dropped must not count in what grows either
            if wiring.watch is None and self.wants_sources(self._steps + 1):
                wiring.watch = {}  # an interrupt came between two wirings
            for sources in (wiring.watch or {}).values():
                sources.clear()

    def sources(self, wiring: Wiring) -> dict[int, Sequence[GradientSource]]:
        """By layer, what the backward passes of this step left; an error if they left nothing."""
        if wiring.watch is None or not any(wiring.watch.values()):
            names = ", ".join(layer.name for layer in wiring.layers)
            wanted = f"step {self.steps + 1} must leave the gradient of dormant connections of {names}, but has not"
            raise RuntimeError(f"the backward pass of {wanted}: run the forward pass after the step before")
        return dict(wiring.watch)
