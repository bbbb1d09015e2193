"""Which dormant positions are allowed where neurons have caps, uniform draws among them, and how exactly K is kept.

The rows and columns with room make a smaller matrix in each layer; the rank formula gives its r-th dormant position.
Draws can reach a dead end, where an augmenting path of dead that return adds one more, until K (docs/constraints.md).
"""

import math
from collections import defaultdict, deque
from collections.abc import Sequence

import torch
from torch import Tensor

from wirebound.ops import draw_layers, philox
from wirebound.ops.layout import Geometry
from wirebound.ops.philox import Stream, stream_of


class Room:
    """What neurons still have room for, while connections are added to those at the sorted positions ``occupied``."""

    def __init__(self, geometry: Geometry, fan_caps: Tensor, occupied: Tensor) -> None:
        self.geometry, self.occupied = geometry, occupied
        device = occupied.device
        self._n_out, self._n_in, self._row_start, self._column_start, self._position_start = (
            torch.tensor(numbers, device=device)
            for numbers in (geometry.n_out, geometry.n_in, geometry.row_start, geometry.column_start, geometry.position_start)
        )
        caps = fan_caps.to(device)
        self.inward = torch.repeat_interleave(caps[0], self._n_out)  # of each row, through all layers
        self.outward = torch.repeat_interleave(caps[1], self._n_in)  # of each column
        self._layer_of_column = torch.repeat_interleave(torch.arange(geometry.layers, device=device), self._n_in)
        self._subtract(*self.place(occupied), 1)

    def place(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        columns, rows = self.geometry.locate(positions)
        return columns, rows + self._row_start[self._layer_of_column[columns]]

    def _subtract(self, columns: Tensor, rows: Tensor, amount: int) -> None:
        self.outward.index_add_(0, columns, torch.full_like(columns, -amount))
        self.inward.index_add_(0, rows, torch.full_like(rows, -amount))

    def layer_room(self) -> list[int]:
        """For each layer, how many connections it can take at most, as far as sums tell."""
        found = []
        for layer, size in enumerate(self.geometry.sizes):
            (r0, r1), (c0, c1) = (starts[layer : layer + 2] for starts in (self._row_start, self._column_start))
            start, end = torch.searchsorted(self.occupied, self._position_start[layer : layer + 2]).tolist()
            sums = int(self.inward[r0:r1].sum()), int(self.outward[c0:c1].sum())
            found.append(max(0, min(*sums, size - (end - start))))
        return found

    def take(self, candidates: Tensor, count: int) -> Tensor:
        """Add up to ``count`` dormant candidates, in their order, each if there is still room for it; those added.

        In a few passes: a candidate is certain to fit if it would even if all before it were taken; the rest repeats.
        """
        columns, rows = self.place(candidates)
        undecided = torch.arange(candidates.numel(), device=candidates.device)
        taken = []
        while count:
            undecided = undecided[(self.outward[columns[undecided]] > 0) & (self.inward[rows[undecided]] > 0)]
            if not undecided.numel():
                break
            c, r = columns[undecided], rows[undecided]
            sure = (rank_among_equals(c) < self.outward[c]) & (rank_among_equals(r) < self.inward[r])
            sure[count:] = False
            chosen = undecided[sure]
            self._subtract(columns[chosen], rows[chosen], 1)
            count -= chosen.numel()
            undecided = undecided[~sure]
            taken.append(chosen)
        order = torch.cat(taken).sort().values if taken else undecided[:0]
        self.occupied = torch.cat([self.occupied, candidates[order]]).sort().values
        return candidates[order]

    def give_back(self, position: int) -> None:
        self._subtract(*self.place(torch.tensor([position], device=self.occupied.device)), -1)
        self.occupied = self.occupied[self.occupied != position]

    def open_cells(self, layer: int, first: int, last: int) -> Tensor:
        """Whether cells of columns first .. last of a layer have room on both sides: [n_out, last - first]."""
        start = self.geometry.column_start[layer]
        rows = slice(*self.geometry.row_start[layer : layer + 2])
        return (self.inward[rows] > 0)[:, None] & (self.outward[start + first : start + last] > 0)[None, :]

    def draw(self, count: int, numbers: "Numbers", layer: int | None = None) -> Tensor:
        """Add ``count`` connections one by one, each uniform over what is allowed then, in one layer or in all; those added.

        Fewer are added where nothing is allowed any more.
        """
        drawn = []
        while count:
            allowed = _Allowed(self, layer)
            if not allowed.size:
                break
            candidates = allowed.at(numbers.below(allowed.size, count + count // 2 + 2))
            found = self.take(candidates[rank_among_equals(candidates) == 0], count)  # each once
            count -= found.numel()
            drawn.append(found)
        return torch.cat(drawn) if drawn else self.occupied[:0]


class _Allowed:
    """The positions that are allowed and dormant now, by rank."""

    def __init__(self, room: Room, layer: int | None) -> None:
        self.room = room
        open_rows, open_columns = room.inward > 0, room.outward > 0
        if layer is not None:
            first, last = room.geometry.column_start[layer : layer + 2]
            open_columns[:first] = open_columns[last:] = False
        # Ranks of the rows with room: through all layers, and where each layer's start.
        before = torch.cat([open_rows.new_zeros(1, dtype=torch.int64), open_rows.cumsum(0)])
        self.rows = torch.nonzero(open_rows).view(-1)
        self.row_start = before[room._row_start]
        height = self.row_start.diff()[room._layer_of_column]
        self.base = torch.cat([height.new_zeros(1), torch.where(open_columns, height, 0).cumsum(0)])
        columns, rows = room.place(room.occupied)
        inside = open_columns[columns] & open_rows[rows]
        columns, rows = columns[inside], rows[inside]
        self.active = self.base[columns] + before[rows] - self.row_start[room._layer_of_column[columns]]
        self.size = int(self.base[-1]) - self.active.numel()

    def at(self, ranks: Tensor) -> Tensor:
        room = self.room
        cells = philox.dormant_at(ranks, self.active)
        columns = torch.searchsorted(self.base, cells, right=True) - 1
        layers = room._layer_of_column[columns]
        rows = self.rows[self.row_start[layers] + cells - self.base[columns]] - room._row_start[layers]
        return room._position_start[layers] + (columns - room._column_start[layers]) * room._n_out[layers] + rows


class Numbers:
    """The random numbers of one stream and step, one after another."""

    def __init__(self, seed: int, stream: int, step: int, device: torch.device) -> None:
        self.name, self.device = (seed, stream, step), device
        self.used = 0

    def below(self, n: int, count: int) -> Tensor:
        first, self.used = self.used, self.used + count + count % 2
        return philox.integers_below(n, *self.name, count, self.device, first=first)


def rank_among_equals(values: Tensor) -> Tensor:
    """For each element, how many equal ones stand before it."""
    ordered, order = torch.sort(values, stable=True)
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(values.numel(), device=values.device) - torch.searchsorted(ordered, ordered)
    return ranks


def augment(room: Room, newborns: Tensor, known_to_fit: Tensor, missing: int) -> Tensor:
    """``newborns`` with ``missing`` more connections so that all caps hold, as they would with ``known_to_fit`` alone."""
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
    """``count`` sorted positions of one matrix, as even as can be, so that they fit whenever anything does."""
    t = torch.arange(count, device="cpu")
    shift = t // max(1, math.lcm(n_out, n_in))  # along a diagonal, which comes back after so many; then along the next
    return ((t + shift) % n_in * n_out + t % n_out).sort().values


def draw_first(
    geometry: Geometry, fan_caps: Tensor, counts: Sequence[int], seed: int, index: int, device: torch.device
) -> Tensor:
    """``counts[i]`` sorted positions in layer i that keep the caps, drawn one after another; they are known to fit."""
    room = Room(geometry, fan_caps, torch.empty(0, dtype=torch.int64, device=device))
    parts = []
    for layer, count in enumerate(counts):
        found = room.draw(count, Numbers(seed, stream_of(Stream.POSITIONS, index, layer=layer), 0, device), layer)
        if found.numel() < count:
            fits = geometry.position_start[layer] + regular(geometry.n_out[layer], geometry.n_in[layer], count).to(device)
            found = augment(room, found, fits, count - found.numel())
        parts.append(found.sort().values)
    return torch.cat(parts)


def draw_within_caps(
    geometry: Geometry, fan_caps: Tensor, occupied: Tensor, chosen: Tensor, dead: Tensor, name: tuple[int, int, int],
    counts: Sequence[int] | None, shares: Sequence[float] | None, closed: Sequence[bool] | None,
) -> Tensor:
    """``draw_newborns`` where neurons have caps: the chosen, which are among the occupied, and those drawn beside them.

    ``name`` is (seed, wiring index, step).
    """
    if closed is not None:
        fan_caps = fan_caps.masked_fill(torch.tensor(closed, device=fan_caps.device), 0)
    (seed, index, step), device = name, occupied.device
    room = Room(geometry, fan_caps, occupied)
    missing = dead.numel() - chosen.numel()

    def numbers(layer: int | None) -> Numbers:
        return Numbers(seed, stream_of(Stream.NEWBORN, index, layer=layer), step, device)

    wanted: Sequence[int] = counts or ()
    if counts is None and shares is not None:
        wanted = draw_layers(missing, shares, room.layer_room(), seed, stream_of(Stream.NEWBORN_LAYER, index), step)
    drawn = [room.draw(n, numbers(layer), layer) for layer, n in enumerate(wanted)]
    if counts is None:
        drawn.append(room.draw(missing - sum(part.numel() for part in drawn), numbers(None)))
    newborns = torch.cat([chosen, *drawn]).sort().values
    if newborns.numel() == dead.numel():
        return newborns
    if counts is None:
        return augment(room, newborns, dead, dead.numel() - newborns.numel())
    starts = torch.tensor(geometry.position_start[1:], device=device)
    of_newborns, of_dead = (torch.searchsorted(starts, part, right=True) for part in (newborns, dead))
    parts = []
    for layer, (n, found) in enumerate(zip(counts, drawn, strict=True)):
        parts.append(augment(room, newborns[of_newborns == layer], dead[of_dead == layer], n - found.numel()))
    return torch.cat(parts)
