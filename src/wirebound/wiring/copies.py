"""Copies of a wiring that are averaged, place by place, with the original: found out and refused.

``AveragedModel``, EMA callbacks and Polyak updates copy a model and then write averages of θ into the copy, but place k is
another connection as soon as one has moved. So a copy remembers its original and what it held when it was last right, as
two hashes. It is right if it holds that, or θ was written while both had the same positions, or a living wiring has just
its positions and its θ. It is on its own once a method trains it, a gradient arrives, or other state is loaded into it.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wirebound.ops.faults import WiringError
from wirebound.wiring.trust import is_plain, version_of

if TYPE_CHECKING:
    from wirebound.wiring.connections import Connections

_lock = threading.Lock()
_living: weakref.WeakSet[Connections] = weakref.WeakSet()
_ADVICE = "Use wb.WeightAverage(rewiring); to take a network over as it is, use load_state_dict"
_MIXED = (
    "θ was averaged or copied place by place with that of another wiring, as AveragedModel, EMA callbacks and Polyak "
    f"updates do: connections have moved, so a place is not the same connection in both. {_ADVICE}"
)
_UNKNOWN = (
    "its positions were written by something else and are those of no wiring here, as where an average includes buffers "
    f"(use_buffers=True). {_ADVICE}"
)


class Content(NamedTuple):
    """What a wiring holds, as hashes."""

    positions: bytes
    theta: bytes

    @staticmethod
    def of(wiring: Connections) -> Content:
        return Content(_hash(wiring.packed_rows, wiring.colptr) + bytes([wiring.sign_bound]), _hash(wiring.theta.detach()))


def _hash(*tensors: Tensor) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.digest()


@dataclass
class Kinship:
    """What a wiring knows of its copies, and, if it is itself one that is not yet on its own, of its original."""

    copies: weakref.WeakSet[Connections]
    serial: str
    of: weakref.ref[Connections] | None = None
    content: Content | None = None  # with which the copy was last right
    key: object = None  # of the original's positions when they were those of the copy
    seen: tuple[object, ...] = ()  # what the last look at the copy was at
    seen_from_original: tuple[object, ...] = ()
    listening: bool = False  # for a gradient

    @property
    def original(self) -> Connections | None:
        return None if self.of is None else self.of()


def _kinship(wiring: Connections) -> Kinship:
    if wiring.kinship is None:
        wiring.kinship = Kinship(weakref.WeakSet(), secrets.token_hex(8))
    return wiring.kinship


def _is_readable(wiring: Connections) -> bool:
    arrays = (wiring._parameters.get("theta"), wiring._buffers.get("packed_rows"), wiring._buffers.get("colptr"))
    return all(a is not None and is_plain(a) and not a.is_meta for a in arrays) and isinstance(arrays[0], nn.Parameter)


def _others(wiring: Connections) -> list[Connections]:
    """The other living wirings over the same matrices with the same budget."""
    with _lock:
        living = list(_living)
    same = [o for o in living if o is not wiring and o.geometry == wiring.geometry and _is_readable(o)]
    return [other for other in same if other.theta.numel() == wiring.theta.numel()]


def _equal(mine: Tensor, theirs: Tensor) -> bool:
    return mine.dtype is theirs.dtype and mine.device == theirs.device and torch.equal(mine.detach(), theirs.detach())


def _same_positions(one: Connections, other: Connections) -> bool:
    same = _equal(one.packed_rows, other.packed_rows) and _equal(one.colptr, other.colptr)
    return one.sign_bound is other.sign_bound and same


def note_for_copy(wiring: Connections) -> tuple[str, Content] | None:
    """What a copy that is made now has to know: the serial of its original, and what is right."""
    if not _is_readable(wiring):
        return None
    kin = _kinship(wiring)
    if kin.original is not None and kin.content is not None:
        return _kinship(kin.original).serial, kin.content
    return kin.serial, Content.of(wiring)


def become_copy(wiring: Connections, note: tuple[str, Content] | None) -> None:
    """A new wiring: a copy of the one in the note, if that lives in this process."""
    with _lock:
        _living.add(wiring)
    if note is not None:
        for other in _others(wiring):
            if other.kinship is not None and other.kinship.serial == note[0]:
                _relate(wiring, other, note[1])


def _relate(wiring: Connections, original: Connections, content: Content) -> None:
    kin = _kinship(wiring)
    kin.of, kin.content, kin.seen = weakref.ref(original), content, ()
    _kinship(original).copies.add(wiring)


def go_alone(wiring: Connections) -> None:
    """No copy any more: a method or a gradient moves it."""
    if (kin := wiring.kinship) is not None:
        if kin.original is not None:
            _kinship(kin.original).copies.discard(wiring)
        kin.of = kin.content = None
    wiring.alone = True


def load(wiring: Connections) -> None:
    """A whole state was loaded. If another wiring holds the same, this is its copy now, as target networks are."""
    alone = wiring.alone
    go_alone(wiring)
    wiring.alone = alone
    for other in () if alone or not _is_readable(wiring) else _others(wiring):
        if _equal(wiring.theta, other.theta) and _same_positions(wiring, other):
            return _relate(wiring, other, Content.of(wiring))


def is_right_copy(wiring: Connections) -> bool:
    kin = wiring.kinship
    return kin is not None and kin.content is not None and _is_readable(wiring) and Content.of(wiring) == kin.content


def accept(wiring: Connections) -> None:
    if wiring.kinship is not None and _is_readable(wiring):
        wiring.kinship.content = Content.of(wiring)


def mixture_in(wiring: Connections, *state: Tensor) -> str | None:
    """Why a state (θ, packed_rows, colptr) to be loaded is no network: it is that of a copy that was averaged; or None."""
    for other in _others(wiring):
        same = map(_equal, (other.theta, other.packed_rows, other.colptr), state)
        is_copy = other.kinship is not None and other.kinship.original is not None
        if is_copy and all(same) and (fault := find_mixture(other)):
            return fault
    return None


def look(wiring: Connections) -> None:
    """Raise ``WiringError`` if this is a copy that was averaged against other positions, or was given what is in one."""
    kin = wiring.kinship
    if kin is None or not _is_readable(wiring):
        return
    original = kin.original
    if original is not None and _is_readable(original):
        _listen(wiring, kin)
        seen = _sight(wiring, original)
        if not _is_same(seen, kin.seen):
            if fault := find_mixture(wiring):
                raise WiringError(f"{wiring._names()}: {fault}")
            if _same_positions(wiring, original):  # else what is written past torch's counts is looked for each time
                kin.seen = seen
    if kin.copies and not torch.is_grad_enabled():
        wiring.examine_index()
        for copy in list(kin.copies):
            _look_from_original(wiring, copy)


def find_mixture(copy: Connections) -> str | None:
    """Why what a copy holds is no network, or None; then it is right with what it holds now."""
    kin = copy.kinship
    if kin is None or kin.original is None or kin.content is None or (now := Content.of(copy)) == kin.content:
        return None
    if now.positions == kin.content.positions:
        if Content.of(kin.original).positions != now.positions:
            return _MIXED
    else:
        # Not from copies of which nobody knows whether they are right.
        sure = (o for o in _others(copy) if o.kinship is None or o.kinship.original is None or is_right_copy(o))
        thetas = [held.theta for held in map(Content.of, sure) if held.positions == now.positions]
        # Another process may have sent positions that nobody here has.
        distributed = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        if not thetas and not distributed:
            return _UNKNOWN
        if thetas and now.theta not in thetas:
            return _MIXED
    kin.content = now
    return None


def _look_from_original(original: Connections, copy: Connections) -> None:
    """Averages are given back to the original, for an evaluation or for good."""
    kin = copy.kinship
    if kin is None or kin.content is None or not _is_readable(copy):
        return
    seen = _sight(copy, original)
    known = _is_same(seen, kin.seen_from_original)
    if known and kin.key is original._trusted:  # both have had the same positions all along
        return
    if _equal(original.theta, copy.theta) and not _same_positions(original, copy) and bool(original.theta.any()):
        raise WiringError(f"{original._names()}: {_MIXED}")
    if known:
        return
    now, here = Content.of(copy), Content.of(original)
    if now.positions != kin.content.positions and (fault := find_mixture(copy)):
        raise WiringError(f"{original._names()}: in a copy of it, {fault}")
    if kin.key is not None and kin.key is original._trusted and here.positions != kin.content.positions:
        raise WiringError(f"{original._names()}: {_UNKNOWN}")
    kin.seen_from_original = seen
    kin.key = original._trusted if here.positions == now.positions else None


def _sight(copy: Connections, original: Connections) -> tuple[object, ...]:
    """What changes when either moves; an original that is trained has another key after every rewiring."""
    arrays = (copy.theta, copy.packed_rows, copy.colptr)
    return (original._trusted, original.sign_bound, *arrays, *(version_of(a) for a in arrays), version_of(original.theta))


def _is_same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    pairs = zip(one, other, strict=False)
    same = all(a is b or (not isinstance(a, Tensor | tuple) and a == b) for a, b in pairs)
    return same and len(one) == len(other) and one[0] is not None


def _listen(copy: Connections, kin: Kinship) -> None:
    """A gradient says that the copy is trained for its own sake."""
    if kin.listening or not (torch.is_grad_enabled() and copy.theta.requires_grad):
        return
    kin.listening, held = True, weakref.ref(copy)

    def arrived(gradient: Any) -> None:
        if (wiring := held()) is not None:
            go_alone(wiring)

    copy.theta.register_hook(arrived)
