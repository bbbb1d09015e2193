"""What the rows and columns of a network's matrices are: tokens, channels, heads, neurons; and in which order they act.

Connections of one matrix have one time. A path through the network rises in time, so a connection that writes into a
channel of the residual stream reaches those that read it later, and no others.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from wirebound_lab.circuit.stored import Matrix

_BLOCK = re.compile(r"blocks\.(\d+)\.(attention\.query_key_value|attention\.out|mlp\.up|mlp\.down)")
_WITHIN = {"attention.query_key_value": 1, "attention.out": 2, "mlp.up": 3, "mlp.down": 4}
BYTES = 256  # tokens of a network that reads bytes


@dataclass
class Group:
    """Nodes of one kind with consecutive numbers."""

    kind: str  # token, place, channel, query, key, value, unit, next, input, neuron, output, head
    title: str  # of one node, with {} for its number or name
    first: int
    size: int
    names: list[str] = field(default_factory=list)  # of the nodes, instead of their numbers
    head_size: int = 0  # channels of a head, in queries, keys and values
    members: list[list[int]] = field(default_factory=list)  # of each head: first nodes of its queries, keys and values


@dataclass
class Part:
    """A matrix between groups: from node ``source`` on to node ``target`` on."""

    matrix: Matrix
    source: int
    target: int
    time: int


@dataclass
class Graph:
    kind: str  # gpt, stack, or matrices that are not joined
    groups: list[Group]
    parts: list[Part]

    def add(self, kind: str, title: str, size: int, **other: Any) -> Group:
        first = self.groups[-1].first + self.groups[-1].size if self.groups else 0
        self.groups.append(Group(kind, title, first, size, **other))
        return self.groups[-1]


def read_graph(matrices: Sequence[Matrix], config: Mapping[str, Any], summary: Mapping[str, Any]) -> Graph:
    by_name = {matrix.name: matrix for matrix in matrices}
    if {"embed", "blocks.0.attention.query_key_value", "head"} <= set(by_name):
        return _gpt(by_name, int(config.get("heads") or 1), _token_names(by_name["head"].n_out, summary))
    joined = all(a.n_out == b.n_in for a, b in pairwise(matrices))
    return _stack(matrices, config, summary) if joined else _apart(matrices)


def _gpt(matrices: Mapping[str, Matrix], heads: int, tokens: list[str]) -> Graph:
    graph, embed = Graph("gpt", [], []), matrices["embed"]
    width = embed.n_out
    head_size = width // heads if width % heads == 0 else width
    depth = 1 + max(int(found[1]) for found in map(_BLOCK.fullmatch, matrices) if found)
    read = graph.add("token", "token {}", embed.n_in, names=tokens)
    starts = {"embed": read.first}
    if "place" in matrices:
        starts["place"] = graph.add("place", "place {}", matrices["place"].n_in).first
    stream = graph.add("channel", "residual channel {}", width)
    members = []
    for block in range(depth):
        name, said = f"blocks.{block}.", f"block {block}"
        three = [graph.add(k, f"{said} {k} {{}}", width, head_size=head_size) for k in ("query", "key", "value")]
        members += [[group.first + head * head_size for group in three] for head in range(width // head_size)]
        starts |= {name + "attention.query_key_value": three[0].first, name + "attention.out": three[2].first}
        if name + "mlp.up" in matrices:
            units = graph.add("unit", f"{said} unit {{}}", matrices[name + "mlp.up"].n_out)
            starts |= {name + "mlp.up": units.first, name + "mlp.down": units.first}
    written = graph.add("next", "next token {}", matrices["head"].n_out, names=tokens)
    each = len(members) // depth
    names = [f"block {block} head {head}" for block in range(depth) for head in range(each)]
    graph.add("head", "{}", len(members), names=names, members=members, head_size=head_size)
    for name, matrix in matrices.items():
        found = _BLOCK.fullmatch(name)
        if found and found[2] in ("attention.query_key_value", "mlp.up"):
            ends = stream.first, starts[name]
        elif found or name in ("embed", "place"):
            ends = starts[name], stream.first
        elif name == "head":
            ends = stream.first, written.first
        else:
            continue
        time = 4 * int(found[1]) + _WITHIN[found[2]] if found else 4 * depth + 1 if name == "head" else 0
        graph.parts.append(Part(matrix, *ends, time))
    graph.parts.sort(key=lambda part: part.time)
    return graph


def _token_names(vocab: int, summary: Mapping[str, Any]) -> list[str]:
    names = summary.get("token_names")
    if isinstance(names, list) and len(names) == vocab and all(isinstance(name, str) for name in names):
        return [_visible(name) for name in names]
    return [_visible(chr(code)) if code < 128 else f"\\x{code:02x}" for code in range(BYTES)] if vocab == BYTES else []


def _visible(text: str) -> str:
    shown = {" ": "space", "\n": "newline", "\t": "tab"}.get(text)
    return shown or (text if text.isprintable() else ascii(text)[1:-1])


def _stack(matrices: Sequence[Matrix], config: Mapping[str, Any], summary: Mapping[str, Any]) -> Graph:
    graph = Graph("stack", [], [])
    shape = config.get("input_shape") or summary.get("input_shape")
    before = graph.add("input", "input {}", matrices[0].n_in, names=_pixels(matrices[0].n_in, shape))
    for number, matrix in enumerate(matrices, start=1):
        last = number == len(matrices)
        after = graph.add("output" if last else "neuron", "output {}" if last else f"hidden {number} unit {{}}", matrix.n_out)
        graph.parts.append(Part(matrix, before.first, after.first, number - 1))
        before = after
    return graph


def _pixels(inputs: int, shape: Any) -> list[str]:
    """Square pictures of one channel have rows and columns."""
    side = round(inputs**0.5)
    if side * side != inputs or side < 4 or shape not in (None, [side, side], [1, side, side]):
        return []
    return [f"{number} (row {number // side}, column {number % side})" for number in range(inputs)]


def _apart(matrices: Sequence[Matrix]) -> Graph:
    """Convolutions, recurrent layers and the like: what lies between two matrices is not known here."""
    graph = Graph("apart", [], [])
    for time, matrix in enumerate(matrices):
        before = graph.add("input", f"{matrix.name} input {{}}", matrix.n_in)
        after = graph.add("output", f"{matrix.name} output {{}}", matrix.n_out)
        graph.parts.append(Part(matrix, before.first, after.first, time))
    return graph
