"""Which columns of a layer with sparse inputs have occurred: newborns are drawn among those."""

import torch
from torch import Tensor


class SeenColumns:
    """The columns of one layer in which a training pass ever had an input that is not 0: a byte for each."""

    def __init__(self, n_in: int, device: torch.device) -> None:
        self.flags = torch.zeros(n_in, dtype=torch.uint8, device=device)
        self._listed: Tensor | None = None

    def changed(self) -> None:
        """Flags have been set."""
        self._listed = None

    def add_dense(self, x: Tensor) -> None:
        """A pass with these dense rows, in a layer that also has sparse ones."""
        self.flags |= (x.detach() != 0).any(0)
        self._listed = None

    @property
    def columns(self) -> Tensor:
        """All that have occurred, sorted, int64."""
        if self._listed is None:
            self._listed = torch.nonzero(self.flags).view(-1)
        return self._listed

    def set(self, columns: Tensor) -> None:
        """Begin with these columns."""
        self.flags.zero_()
        self.flags[columns.to(self.flags.device)] = 1
        self._listed = None
