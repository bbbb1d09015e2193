"""``SampleCollector``: takes samples along a run, not too many and not too close."""

from __future__ import annotations

from torch import nn

from wirebound.posterior.samples import Samples


class SampleCollector:
    """Offered the model after each step (or epoch), keeps some of them.

    Args:
        model: the model in training.
        every: keep one in so many that are offered.
        burn_in: keep none of the first so many.
        keep: at most so many are kept; when there would be more, every second one goes and ``every`` doubles, so that
            what is kept is always spread evenly over the run.

        collector = wb.SampleCollector(model, every=600, burn_in=6000, keep=20)
        ...
        rewiring.step()
        collector.offer()
        ...
        probabilities = collector.samples.predict(x)
    """

    def __init__(self, model: nn.Module, *, every: int = 1, burn_in: int = 0, keep: int | None = None) -> None:
        if every < 1:
            raise ValueError(f"every (={every}) must be >= 1")
        if burn_in < 0:
            raise ValueError(f"burn_in (={burn_in}) must be >= 0")
        if keep is not None and keep < 2:
            raise ValueError(f"keep (={keep}) must be >= 2")
        self.model, self.every, self.burn_in, self.keep = model, every, burn_in, keep
        self.offered = 0
        self.samples = Samples(model)

    def offer(self) -> bool:
        """Tell that the model has moved on; True if it was kept."""
        self.offered += 1
        after = self.offered - self.burn_in
        if after < 1 or after % self.every:
            return False
        if self.keep is not None and len(self.samples) == self.keep:
            self.samples.thin()  # the second, fourth … remain: the multiples of the new interval
            self.every *= 2
            if after % self.every:
                return False
        self.samples.add(self.model, self.offered)
        return True
