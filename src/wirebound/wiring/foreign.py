"""Copies of a wiring that somebody else averages, place by place, with the original: found out and refused.

θ by itself says nothing: place k is another connection as soon as one has moved. ``AveragedModel``, EMA callbacks and
Polyak updates copy a model and then write averages of θ into the copy, and sometimes positions too. So a copy remembers
of which wiring it is one and what it held when it was last right, as two hashes. It is looked at when it is used:

- it holds what it held, or θ was written while both had the same positions: right;
- its positions were written, and a living wiring has just these and just this θ: a plain copy, right;
- anything else: θ belongs to other connections than its positions say.

A copy is on its own from the moment when a method trains it, a gradient arrives, or other state is loaded into it.
Nothing of this costs a wiring anything that has no copies: one look at an attribute in a forward pass.
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
    from wirebound.wiring.wiring import Wiring

_lock = threading.Lock()
_living: weakref.WeakSet[Wiring] = weakref.WeakSet()
_MIXED = (
    "θ was averaged or copied place by place with that of another wiring, as AveragedModel, EMA callbacks and Polyak "
    "updates do: connections have moved, so a place is not the same connection in both. Use wb.WeightAverage(rewiring), "
    "whose averages move with their connections; to take a network over as it is, use load_state_dict"
)

_UNKNOWN = (
    "its positions were written by something else and are those of no wiring here, as where an average takes whole numbers "
    "along (use_buffers=True). Use wb.WeightAverage(rewiring); to take a network over as it is, use load_state_dict"
)


class Content(NamedTuple):
    """What a wiring holds, as hashes: K numbers need not be kept to know them again."""

    positions: bytes
    theta: bytes

    @staticmethod
    def of(wiring: Wiring) -> Content:
        return Content(
            _hash(str(wiring.sign_bound).encode(), wiring.packed_rows, wiring.colptr), _hash(b"", wiring.theta.detach())
        )


def _hash(start: bytes, *tensors: Tensor) -> bytes:
    digest = hashlib.blake2b(start, digest_size=16)
    for tensor in tensors:
        digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.digest()


class Note(NamedTuple):
    """What a copy is given on its way: the serial of its original, and what the copy was right with."""

    serial: str
    content: Content


@dataclass
class Kinship:
    """What a wiring knows of its copies, and, if it is a copy that is not yet on its own, of its original."""

    copies: weakref.WeakSet[Wiring]
    serial: str
    of: weakref.ref[Wiring] | None = None
    content: Content | None = None  # with which the copy was last right
    key: object = None  # of the original's positions when they were those of the copy
    seen: tuple[object, ...] = ()  # what the last look at the copy was at
    seen_from_original: tuple[object, ...] = ()
    listening: bool = False  # for a gradient

    @property
    def original(self) -> Wiring | None:
        """The wiring that this is a copy of, if it lives and the copy is not on its own."""
        return None if self.of is None else self.of()


def enter(wiring: Wiring) -> None:
    """A new wiring, of which there may be copies some day."""
    with _lock:
        _living.add(wiring)


def _others(wiring: Wiring) -> list[Wiring]:
    """The other living wirings over the same matrices with the same budget."""
    with _lock:
        living = list(_living)
    same = [o for o in living if o is not wiring and o.geometry == wiring.geometry and _is_readable(o)]
    return [other for other in same if other.budget == wiring.budget]


def _is_readable(wiring: Wiring) -> bool:
    """Whether it has its own arrays, with numbers in them: no stand-ins, and none that ``functional_call`` has put there."""
    arrays = (wiring._parameters.get("theta"), wiring._buffers.get("packed_rows"), wiring._buffers.get("colptr"))
    return all(a is not None and is_plain(a) and not a.is_meta for a in arrays) and isinstance(arrays[0], nn.Parameter)


def _kinship(wiring: Wiring) -> Kinship:
    if wiring.kinship is None:
        wiring.kinship = Kinship(weakref.WeakSet(), secrets.token_hex(8))
    return wiring.kinship


# Becoming a copy, and ceasing to be one


def note_for_copy(wiring: Wiring) -> Note | None:
    """What a copy that is made now has to know. A copy of a copy is one of the original, right where that was."""
    if not _is_readable(wiring):
        return None
    kin = _kinship(wiring)
    original = kin.original
    if original is not None and kin.content is not None:
        return Note(_kinship(original).serial, kin.content)
    return Note(kin.serial, Content.of(wiring))


def become_copy(wiring: Wiring, note: Note | None) -> None:
    """Of the wiring in the note, if that lives in this process."""
    enter(wiring)
    if note is None:
        return
    for other in _others(wiring):
        if other.kinship is not None and other.kinship.serial == note.serial:
            _relate(wiring, other, note.content)


def _relate(wiring: Wiring, original: Wiring, content: Content) -> None:
    kin = _kinship(wiring)
    kin.of, kin.content, kin.seen = weakref.ref(original), content, ()
    _kinship(original).copies.add(wiring)


def go_alone(wiring: Wiring) -> None:
    """No copy any more: a method or a gradient moves it."""
    kin = wiring.kinship
    if kin is not None:
        if kin.original is not None:
            _kinship(kin.original).copies.discard(wiring)
        kin.of = kin.content = None
    wiring.alone = True


def load(wiring: Wiring) -> None:
    """A whole state was loaded. If another wiring holds the same, this is its copy now, as target networks are."""
    alone = wiring.alone
    go_alone(wiring)
    wiring.alone = alone
    if alone or not _is_readable(wiring):
        return
    for other in _others(wiring):
        if _same(wiring, other, "theta") and _same_positions(wiring, other):
            _relate(wiring, other, Content.of(wiring))
            return


def is_right_copy(wiring: Wiring) -> bool:
    """Whether this is a copy that holds what it was last right with."""
    kin = wiring.kinship
    return kin is not None and kin.content is not None and _is_readable(wiring) and Content.of(wiring) == kin.content


def accept(wiring: Wiring) -> None:
    """What a copy holds now is right: it was moved or converted."""
    if wiring.kinship is not None and _is_readable(wiring):
        wiring.kinship.content = Content.of(wiring)


def mixture_in(wiring: Wiring, theta: Tensor, packed_rows: Tensor, colptr: Tensor) -> str | None:
    """Why a state that is to be loaded is no network: it is that of a copy that was averaged; or None."""
    for other in _others(wiring):
        if other.kinship is None or other.kinship.original is None:
            continue
        pairs = ((other.theta.detach(), theta), (other.packed_rows, packed_rows), (other.colptr, colptr))
        if all(_equal(mine, given.detach()) for mine, given in pairs) and (fault := find_mixture(other)):
            return fault
    return None


# Looking


def look(wiring: Wiring) -> None:
    """Raise ``WiringError`` if this is a copy that was averaged against other positions, or was given what is in one."""
    kin = wiring.kinship
    if kin is None or not _is_readable(wiring):
        return
    if kin.original is not None:
        _look_at_copy(wiring, kin)
    if kin.copies and not torch.is_grad_enabled():
        wiring._examine()
        for copy in list(kin.copies):
            _look_from_original(wiring, copy)


def _look_at_copy(copy: Wiring, kin: Kinship) -> None:
    original = kin.original
    if original is None or not _is_readable(original):
        return
    _listen(copy, kin)
    seen = _sight(copy, original)
    if _is_same(seen, kin.seen):
        return
    fault = find_mixture(copy)
    if fault:
        raise WiringError(f"{copy._names()}: {fault}")
    if _same_positions(copy, original):  # else what is written past torch's counts must be looked for each time
        kin.seen = seen


def find_mixture(copy: Wiring) -> str | None:
    """Why what a copy holds is no network, or None; then it is right with what it holds now."""
    kin = copy.kinship
    if kin is None or kin.original is None or kin.content is None:
        return None
    now = Content.of(copy)
    if now == kin.content:
        return None
    if now.positions == kin.content.positions:
        if Content.of(kin.original).positions != now.positions:
            return _MIXED
    else:
        held = [Content.of(other) for other in _others(copy) if not _was_written(other)]
        thetas = [content.theta for content in held if content.positions == now.positions]
        if not thetas and not _is_distributed():
            return _UNKNOWN
        if thetas and now.theta not in thetas:
            return _MIXED
    kin.content = now
    return None


def _was_written(wiring: Wiring) -> bool:
    """Whether this is itself a copy of which nobody knows if it is right."""
    kin = wiring.kinship
    return kin is not None and kin.original is not None and not is_right_copy(wiring)


def _look_from_original(original: Wiring, copy: Wiring) -> None:
    """Averages are given back to the original, for an evaluation or for good."""
    kin = copy.kinship
    if kin is None or kin.content is None or not _is_readable(copy):
        return
    seen = _sight(copy, original)
    known = _is_same(seen, kin.seen_from_original)
    if known and kin.key is original._trusted:  # both have had the same positions all along
        return
    if _same(original, copy, "theta") and not _same_positions(original, copy) and bool(original.theta.any()):
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


def _sight(copy: Wiring, original: Wiring) -> tuple[object, ...]:
    """What changes when either moves; an original that is trained has another key after every rewiring."""
    arrays = (copy.theta, copy.packed_rows, copy.colptr)
    return (original._trusted, original.sign_bound, *arrays, *(version_of(a) for a in arrays), version_of(original.theta))


def _is_same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    if len(one) != len(other) or one[0] is None:
        return False
    return all(a is b or (not isinstance(a, Tensor | tuple) and a == b) for a, b in zip(one, other, strict=True))


def _same(one: Wiring, other: Wiring, name: str) -> bool:
    return _equal(getattr(one, name).detach(), getattr(other, name).detach())


def _equal(mine: Tensor, theirs: Tensor) -> bool:
    return mine.dtype is theirs.dtype and mine.device == theirs.device and torch.equal(mine, theirs)


def _same_positions(one: Wiring, other: Wiring) -> bool:
    return one.sign_bound is other.sign_bound and _same(one, other, "packed_rows") and _same(one, other, "colptr")


def _is_distributed() -> bool:
    """Whether another process may have sent positions that nobody here has."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _listen(copy: Wiring, kin: Kinship) -> None:
    """A gradient says that the copy is trained for its own sake."""
    theta = copy.theta
    if kin.listening or not (torch.is_grad_enabled() and theta.requires_grad):
        return
    kin.listening = True
    held = weakref.ref(copy)

    def arrived(gradient: Any) -> None:
        wiring = held()
        if wiring is not None:
            go_alone(wiring)

    theta.register_hook(arrived)
