"""Which inputs of a layer with sparse rows were there: newborns come to columns that are, and nobody stays where none ever was."""

import torch
from torch import Tensor


class SeenColumns:
    """The columns of one layer that training passes had inputs in: ever, a byte for each, and since the last step."""

    def __init__(self, n_in: int, device: torch.device) -> None:
        self.flags = torch.zeros(n_in, dtype=torch.uint8, device=device)
        self.count = 0  # of flags that are set
        self._present: list[Tensor] = []

    def add(self, columns: Tensor, new: int) -> None:
        """A pass had inputs in these columns, in any order; it has set the flags, of which so many were 0."""
        self._present.append(columns)
        self.count += new

    def add_dense(self, x: Tensor) -> None:
        """A pass with these dense rows, in a layer that also has sparse ones."""
        self.add_flags((x.detach() != 0).any(0))

    def add_flags(self, present: Tensor) -> None:
        """A pass had inputs where this is not 0."""
        self.flags |= present != 0
        self._present.append(torch.nonzero(present).view(-1))
        self.count = int(self.flags.sum())

    def present(self) -> Tensor:
        """The columns of the passes since the last step, sorted."""
        if len(self._present) != 1 or not self._present[0].numel():
            nothing = torch.empty(0, dtype=torch.int64, device=self.flags.device)
            self._present = [torch.unique(torch.cat([nothing, *self._present]))]
            return self._present[0]
        return torch.unique(self._present[0])

    def forget_present(self) -> None:
        """A step was taken, or its gradients were dropped."""
        self._present = []

    def set(self, columns: Tensor) -> None:
        """Begin as if these columns had occurred."""
        self.flags.zero_()
        self.flags[columns.to(self.flags.device)] = 1
        self.count = int(self.flags.sum())
