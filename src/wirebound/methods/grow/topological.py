"""Growth from the wiring itself: dormant connections that close many paths of length three. No gradient, no scores.

In the bipartite graph of a layer, input u and output v are three steps apart if there are an output v' and an input u'
with connections u – v', v' – u' and u' – v. The score of the dormant u – v is the sum over such paths

    Σ  1 / (k_v' · k_u')^power          k: connections of a neuron

Newborns are drawn in proportion to it by walking, so that neither scores nor pairs are ever listed:

    draw a connection v' – u' in proportion to (k_v' · k_u')^(1 − power)
    draw u uniformly among the inputs of v', and v among the outputs of u'
    if u – v is dormant and was not met before, it is born

O(K + newborns) memory. Power 1/2 is the degree-normalised L3 index (Kovács et al. 2019), which CH3-L3 of
Cannistraci-Hebb training refines by counting only the connections that leave the local community.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from wirebound.methods.grow.growth import Growth
from wirebound.ops import philox
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring import draw_newborns
from wirebound.wiring.room import Room, rank_among_equals

ROUNDS = 8  # of walks: what they have not found by then is drawn uniformly


@dataclass(frozen=True)
class Topological:
    """Dormant connections in proportion to the paths of length three that they close; for soft growth as in CHTs.

    Where walks find too few, as in a wiring of single connections, the rest is drawn uniformly. A neuron without any
    connection can only get one in this way.

    Args:
        power: by how much paths through neurons with many connections count less: 0 counts paths, 1/2 is the
            degree-normalised L3 index, 1 is resource allocation.
    """

    power: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.power <= 1:
            raise ValueError(f"power (={self.power}) must be in [0, 1]")

    def __call__(self, growth: Growth) -> Tensor:
        wiring, survivors = growth.wiring, growth.survivors
        edges = torch.tensor(wiring.geometry.position_start, device=survivors.device)
        bounds = torch.searchsorted(survivors, edges).tolist()
        room = None if wiring.fan_caps is None else Room(wiring.geometry, wiring.fan_caps, survivors)
        found = [survivors[:0]]
        for layers, count in growth.regions:
            parts = [survivors[bounds[i] : bounds[i + 1]] for i in layers if not wiring.is_frozen(i)]
            graph = torch.cat(parts) if parts else survivors[:0]
            stream = stream_of(Stream.GROWTH, wiring.index, layer=None if growth.counts is None else layers[0])
            found.append(self._walk(growth, graph, count, room, stream))
        chosen = torch.cat(found).sort().values
        return draw_newborns(wiring, survivors, growth.dead, growth.step, chosen=chosen, counts=growth.counts)

    def _walk(self, growth: Growth, graph: Tensor, count: int, room: Room | None, stream: int) -> Tensor:
        """Up to ``count`` dormant positions in proportion to their scores, from walks along the connections ``graph``."""
        walks, taken, found = Walks(growth, graph, self.power), growth.survivors, [graph[:0]]
        number = 2 * count + 64
        for turn in range(ROUNDS if graph.numel() else 0):
            met = walks.ends(growth.wiring.seed, stream, growth.step, number, turn * number)
            met = met[rank_among_equals(met) == 0]  # each once, in the order in which they were met
            at = torch.searchsorted(taken, met).clamp(max=taken.numel() - 1)
            met = met[taken[at] != met]
            new = met[:count] if room is None else room.take(met, count)
            found.append(new)
            count -= new.numel()
            if not count:
                break
            taken = torch.cat([taken, new]).sort().values
        return torch.cat(found)


class Walks:
    """Walks of length three along connections at sorted positions, which begin in the middle."""

    def __init__(self, growth: Growth, graph: Tensor, power: float) -> None:
        self.geometry = growth.wiring.geometry
        self.columns, self.rows = self.geometry.locate(graph)
        layers = torch.searchsorted(torch.tensor(self.geometry.column_start[1:], device=graph.device), self.columns, right=True)
        outputs = self.rows + torch.tensor(self.geometry.row_start, device=graph.device)[layers]  # among those of all layers
        # For each connection: where its column starts among the connections, which stand by column, and its row among
        # those by row; and how many these have.
        self.by_row = torch.sort(outputs, stable=True).indices
        self.of_column, self.of_row = _runs(self.columns), _runs(outputs[self.by_row])
        back = torch.empty_like(self.by_row)
        back[self.by_row] = torch.arange(back.numel(), device=graph.device)
        self.of_row = (self.of_row[0][back], self.of_row[1][back])
        degrees = (self.of_column[1] * self.of_row[1]).to(torch.float64)
        self.weights = degrees.pow(1 - power).cumsum(0)

    def ends(self, seed: int, stream: int, step: int, count: int, first: int) -> Tensor:
        """The positions between the ends of walks ``first`` .. ``first + count``."""
        words = philox.words(seed, stream, step, 4 * count, self.columns.device, first=4 * first).view(-1, 4)
        u = (words[:, 0] * 2.0**-32 + words[:, 1] * 2.0**-64) * self.weights[-1]
        middle = torch.searchsorted(self.weights, u, right=True).clamp(max=self.weights.numel() - 1)
        (row_start, row_size), (column_start, column_size) = self.of_row, self.of_column
        into = self.by_row[row_start[middle] + (words[:, 2] * row_size[middle] >> 32)]  # u – v'
        out = column_start[middle] + (words[:, 3] * column_size[middle] >> 32)  # u' – v
        return self.geometry.position_of(self.columns[into], self.rows[out])


def _runs(values: Tensor) -> tuple[Tensor, Tensor]:
    """For each of sorted values, where the equal ones start and how many they are."""
    start = torch.searchsorted(values, values)
    return start, torch.searchsorted(values, values, right=True) - start
