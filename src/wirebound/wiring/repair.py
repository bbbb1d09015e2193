"""How exactly K is kept where caps leave the last newborns nowhere to go.

Connections drawn one after another can paint themselves into a corner: rows with room and columns with room are left,
but where they meet, connections are active already. Then some newborns make way for connections that died in this step:

Let S be the survivors, F the dead, N the newborns so far, |N| < |F|. S ∪ F kept all caps before the step. Seen as flows
from columns to rows, with capacities that S leaves, F is a larger flow than N, so there is an augmenting path: from a column
with room along a connection of F to a row; if that has no room, back along a newborn of N to a column that it frees; and so on to a
row with room. Its connections of F join, those of N leave, one more than before is active, and all caps hold. Repeated
until none is missing, it ends with exactly K.
"""

from __future__ import annotations

from collections import defaultdict, deque

import torch
from torch import Tensor

from wirebound.wiring.room import Room


def augment(room: Room, newborns: Tensor, known_to_fit: Tensor, missing: int) -> Tensor:
    """``newborns`` with ``missing`` more connections, so that all caps hold; unsorted.

    ``known_to_fit`` are positions that, in place of the newborns, would keep all caps.
    """
    paths = _Paths(room, newborns, known_to_fit)
    for _ in range(missing):
        joined, left = paths.shortest()
        for position in left:
            room.give_back(position)
        room.take(torch.tensor(joined, device=newborns.device), len(joined))
        paths.apply(joined, left)
    return torch.tensor(sorted(paths.current), dtype=torch.int64, device=newborns.device)


class _Paths:
    """The connections that may join, by column, and those that may leave, by row."""

    def __init__(self, room: Room, newborns: Tensor, known_to_fit: Tensor) -> None:
        self.room = room
        self.current = set(newborns.tolist())
        self.ends: dict[int, tuple[int, int]] = {}
        self.joining: dict[int, set[int]] = defaultdict(set)
        self.leaving: dict[int, set[int]] = defaultdict(set)
        self.known = set(known_to_fit.tolist())
        for positions in (newborns, known_to_fit):
            columns, rows = room.place(positions)
            ends = zip(columns.tolist(), rows.tolist(), strict=True)
            self.ends.update(zip(positions.tolist(), ends, strict=True))
        for position in self.known ^ self.current:
            self._file(position)

    def _file(self, position: int) -> None:
        column, row = self.ends[position]
        if position in self.current:
            self.leaving[row].add(position)
        else:
            self.joining[column].add(position)

    def apply(self, joined: list[int], left: list[int]) -> None:
        for position in joined:
            self.joining[self.ends[position][0]].discard(position)
            self.current.add(position)
        for position in left:
            self.leaving[self.ends[position][1]].discard(position)
            self.current.discard(position)
            if position in self.known:
                self._file(position)

    def shortest(self) -> tuple[list[int], list[int]]:
        """(connections that join, connections that leave) of a shortest augmenting path."""
        outward, inward = self.room.outward.tolist(), self.room.inward.tolist()
        start = sorted(column for column, free in self.joining.items() if free and outward[column] > 0)
        came: dict[int, tuple[int, int] | None] = dict.fromkeys(start)  # column: the pair of connections that led there
        seen_rows: set[int] = set()
        queue = deque(start)
        while queue:
            column = queue.popleft()
            for join in sorted(self.joining[column]):
                row = self.ends[join][1]
                if inward[row] > 0:
                    return self._trace(came, column, join)
                if row in seen_rows:
                    continue
                seen_rows.add(row)
                for leave in sorted(self.leaving[row]):
                    freed = self.ends[leave][0]
                    if freed not in came:
                        came[freed] = (join, leave)
                        queue.append(freed)
        raise AssertionError("the connections that are known to fit do not: there is no augmenting path")

    def _trace(self, came: dict[int, tuple[int, int] | None], column: int, last: int) -> tuple[list[int], list[int]]:
        joined, left = [last], []
        step = came[column]
        while step is not None:
            joined.append(step[0])
            left.append(step[1])
            step = came[self.ends[step[0]][0]]
        return joined, left


def regular(n_out: int, n_in: int, count: int) -> Tensor:
    """``count`` sorted positions of one matrix, as even as can be: no row has more than ⌈count / n_out⌉ connections and
    no column more than ⌈count / n_in⌉, so they fit whenever anything does."""
    t = torch.arange(count, device="cpu")
    # Along a diagonal, which comes back after lcm(n_out, n_in) steps; then along the next.
    shift = t // max(1, int(torch.lcm(torch.tensor(n_out, device="cpu"), torch.tensor(n_in, device="cpu"))))
    return ((t + shift) % n_in * n_out + t % n_out).sort().values
