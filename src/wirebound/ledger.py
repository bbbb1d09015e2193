"""``ledger``: the bytes that each part of a training run holds, counted from the tensors themselves."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from wirebound import ops
from wirebound.methods.method import Method
from wirebound.nn.masked import MaskedParameter
from wirebound.nn.sparse_layer import SparseLayer, sparse_layers, wirings


@dataclass(frozen=True)
class Entry:
    """One part: what it is, its bytes, and how they come about."""

    part: str
    bytes: int
    note: str


@dataclass(frozen=True)
class Ledger:
    """All parts of a model and its method; ``str()`` of it is a table."""

    entries: tuple[Entry, ...]
    connections: int
    backends: tuple[str, ...] = ()  # who computes for the wirings, and where

    @property
    def total(self) -> int:
        return sum(entry.bytes for entry in self.entries)

    @property
    def per_connection(self) -> float:
        """Bytes for each connection of what grows with their number."""
        grows = sum(e.bytes for e in self.entries if e.note.startswith("K ×"))
        return grows / self.connections if self.connections else 0.0

    def __str__(self) -> str:
        width = max(len(entry.part) for entry in self.entries)
        lines = [f"{e.part:<{width}}  {e.bytes:>15,} B  {e.note}" for e in self.entries]
        lines.append(f"{'total':<{width}}  {self.total:>15,} B")
        lines += [f"{'backend':<{width}}  {text}" for text in self.backends]
        return "\n".join(lines)


def _dense_bytes(layer: SparseLayer) -> int:
    return layer.wiring.layers[layer.layer_id].possible * layer.wiring.theta.element_size()


def ledger(model: nn.Module, method: Method | None = None) -> Ledger:
    """What a model holds and, with its method, what training it holds (gradients count when they exist)."""
    found = wirings(model)
    own = {id(tensor) for w in found for tensor in (w.theta, *w.buffers())}
    others = [p for p in model.parameters() if id(p) not in own]
    entries: list[Entry] = []

    def add(part: str, tensors: Iterable[Tensor | None], note: str) -> None:
        if total := sum(t.numel() * t.element_size() for t in tensors if t is not None):
            entries.append(Entry(part, total, note))

    add("parameters θ", [w.theta for w in found], "K × one number")
    add("index", [w.packed_rows for w in found], "K × int32, row and sign")
    add("column pointers", [w.colptr for w in found], "one int64 for each input of each layer")
    add("signs of neurons", [w.column_signs for w in found], "int8 for each input of each layer")
    add("gradients of θ", [w.theta.grad for w in found], "K × one number")
    plain = method is not None and method.plain
    kept = {} if method is None else method.optimizer.state
    by_name: dict[str, list[Tensor]] = {}
    for w in found:
        for name, value in kept.get(w.theta, {}).items():
            if isinstance(value, Tensor) and value.dim() > 0:
                by_name.setdefault(name, []).append(value)
    for name, tensors in by_name.items():
        add(f"optimiser state {name}", tensors, "K × one number")
    if method is not None:
        born = () if method.adapter is None else method.adapter.born
        add("birth steps", born, f"{'one' if plain else 'K ×'} int32, for Adam's bias correction")
        for part, held, note in method.holds():
            add(part, held, note)
    add("dense parameters", others, "all, zeros included" if plain else "biases, norms and layers that stay dense")
    add("gradients of dense parameters", [p.grad for p in others], "as long as the parameters")
    states = [v for p in others for v in kept.get(p, {}).values() if isinstance(v, Tensor)]
    add("optimiser state of dense parameters", states, "as long as the parameters")
    masked = [layer for _, layer in sparse_layers(model) if isinstance(layer, MaskedParameter)]
    if masked:
        note = "of masked parameters, made in every pass: dense by nature, weight and gradient"
        entries.append(Entry("dense weights in a pass", 2 * sum(layer.dense_bytes for layer in masked), note))
    made = [layer for _, layer in sparse_layers(model) if layer.made_dense and layer not in masked]
    if made:
        times, so_far = sum(s.made_dense for s in made), sum(s.made_dense * _dense_bytes(s) for s in made)
        note = f"for code that computes with layer.weight: {times:,} times so far, {so_far:,} B in all"
        entries.append(Entry("dense weights on demand", sum(map(_dense_bytes, made)), note))
    add("buffers", [b for b in model.buffers() if id(b) not in own], "running statistics and the like")
    used = sorted({f"{ops.backend_of(w.theta).name} on {w.theta.device}" for w in found})
    return Ledger(tuple(entries), sum(w.budget for w in found), tuple(used))
