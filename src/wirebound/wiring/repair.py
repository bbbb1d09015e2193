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

import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from wirebound.wiring.room import Room


def augment(room: Room, newborns: Tensor, known_to_fit: Tensor, missing: int) -> Tensor:
    """``newborns`` with ``missing`` more connections, so that all caps hold, sorted.

    ``known_to_fit`` are positions that, in place of the newborns, would keep all caps.
    """
    both, current = torch.cat([newborns, known_to_fit]), set(newborns.tolist())
    columns, rows = room.place(both)
    ends = dict(zip(both.tolist(), zip(columns.tolist(), rows.tolist(), strict=True), strict=True))
    joining: dict[int, set[int]] = defaultdict(set)  # the connections that may join, by column
    leaving: dict[int, set[int]] = defaultdict(set)  # and those that may leave, by row
    known = set(known_to_fit.tolist())
    for position in known - current:
        joining[ends[position][0]].add(position)
    for position in current - known:
        leaving[ends[position][1]].add(position)
    for _ in range(missing):
        joined, left = _shortest_path(room, ends, joining, leaving)
        for position in left:
            room.give_back(position)
            leaving[ends[position][1]].discard(position)
        for position in joined:
            joining[ends[position][0]].discard(position)
        room.take(torch.tensor(joined, device=newborns.device), len(joined))
        current.difference_update(left)
        current.update(joined)
    return torch.tensor(sorted(current), dtype=torch.int64, device=newborns.device)


def _shortest_path(
    room: Room, ends: dict[int, tuple[int, int]], joining: dict[int, set[int]], leaving: dict[int, set[int]]
) -> tuple[list[int], list[int]]:
    """(connections that join, connections that leave) of a shortest augmenting path."""
    outward, inward = room.outward.tolist(), room.inward.tolist()
    start = sorted(column for column, free in joining.items() if free and outward[column] > 0)
    came: dict[int, tuple[int, int] | None] = dict.fromkeys(start)  # column: the pair of connections that led there
    seen_rows: set[int] = set()
    queue = deque(start)
    while queue:
        column = queue.popleft()
        for join in sorted(joining[column]):
            row = ends[join][1]
            if inward[row] > 0:
                joined, left = [join], []
                while (pair := came[column]) is not None:
                    joined.append(pair[0])
                    left.append(pair[1])
                    column = ends[pair[0]][0]
                return joined, left
            for leave in sorted(leaving[row]) if row not in seen_rows else ():
                freed = ends[leave][0]
                if freed not in came:
                    came[freed] = (join, leave)
                    queue.append(freed)
            seen_rows.add(row)
    raise AssertionError("the connections that are known to fit do not: there is no augmenting path")


def regular(n_out: int, n_in: int, count: int) -> Tensor:
    """``count`` sorted positions of one matrix, as even as can be: no row has more than ⌈count / n_out⌉ connections and
    no column more than ⌈count / n_in⌉, so they fit whenever anything does."""
    t = torch.arange(count, device="cpu")
    shift = t // max(1, math.lcm(n_out, n_in))  # along a diagonal, which comes back after so many; then along the next
    return ((t + shift) % n_in * n_out + t % n_out).sort().values
