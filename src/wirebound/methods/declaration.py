"""What a method declares of itself, for settings files, the command line, sweeps, estimators, reports and docs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from wirebound.methods.method import Method

METHODS: dict[str, type[Method]] = {}  # by name, in the order of registration
NEWBORNS = ("uniform", "share")
_M = TypeVar("_M", bound="type[Method]")


@dataclass(frozen=True)
class Setting:
    """One setting of a method, a task or a run.

    Args:
        name: as the command line, settings files and ``Method.from_settings`` have it.
        type: ``"float"``, ``"int"``, ``"str"``, ``"bool"``, ``"list[int]"`` or ``"list[str]"``, with ``" | None"`` where None is allowed.
        default: its value where nobody gives one.
        help: what it is, in one sentence.
        choices: the values that a ``str`` may have.
        words: what a number may be instead, such as ``"auto"``.
        least, most, above, below: bounds of the value, the first two included.
    """

    name: str
    type: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    words: tuple[str, ...] = ()

    def with_default(self, value: Any) -> Setting:
        """The same setting with another default."""
        return dataclasses.replace(self, default=value)

    def check(self, value: Any) -> None:
        """Raise ``ValueError`` unless a value of the right type, or each of several, keeps to the rule of this setting."""
        if (value is None and "None" in self.type) or (isinstance(value, str) and value in self.words):
            return
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.name} (={value!r}) must be one of {', '.join(self.choices)}")
        bounded = (self.least, self.most, self.above, self.below) != (None,) * 4
        if bounded and not all(callable(one) or self._allows(one) for one in (value if isinstance(value, list) else [value])):
            shown = repr(value) if isinstance(value, str) else value
            raise ValueError(f"{self.name} (={shown}) must be {self._rule()}")

    def _allows(self, value: float | str) -> bool:
        if isinstance(value, str):  # a word that is none of those that it may be
            return False
        at_least, at_most = (self.least is None or value >= self.least), (self.most is None or value <= self.most)
        inside = (self.above is None or value > self.above) and (self.below is None or value < self.below)
        return math.isfinite(value) and at_least and at_most and inside

    def _rule(self) -> str:
        low = f"> {self.above:g}" if self.above is not None else f">= {self.least:g}" if self.least is not None else ""
        high = f"< {self.below:g}" if self.below is not None else f"<= {self.most:g}" if self.most is not None else ""
        if low and high:
            return f"in {'(' if '=' not in low else '['}{low.split()[1]}, {high.split()[1]}{')' if '=' not in high else ']'}"
        words = "".join(f"{word!r} or " for word in self.words)
        return f"{words}{'sizes' if self.type.startswith('list') else 'a finite number'} {low or high}"


@dataclass(frozen=True)
class RunLength:
    """How long a run is, in steps of an epoch and in epochs; None where that is unknown."""

    per_epoch: int | None = None
    epochs: int | None = None

    @property
    def steps(self) -> int | None:
        return None if self.per_epoch is None or self.epochs is None else self.per_epoch * self.epochs


def register(method: _M) -> _M:
    """Make a method known by its name; also as a decorator of its class."""
    taken = METHODS.get(method.name)
    if taken is not None and taken is not method:
        raise ValueError(f"the name of {method.__name__} (={method.name!r}) is taken by {taken.__name__}: choose another")
    METHODS[method.name] = method
    return method


# Settings that several methods have.
L1 = Setting("l1", "float", 1e-4, "α, the ℓ1 pull of every active connection towards 0", least=0)
AUTO = "auto"
NOISE = Setting("noise", "float", 1e-6, "g, the noise in units of η: temperature T = η g²/2", least=0)
TEMPERATURE = Setting("temperature", "float | None", None, "temperature T itself, instead of noise", least=0)
_REPLACED = "share of the connections that set (ζ), rigl, gse and cht (α, at the start) replace at a time"
FRACTION = Setting("fraction", "float", 0.3, _REPLACED, least=0, most=1)
_EVERY = "steps between replacements (default: an epoch for set, 100 for rigl, gse and cht)"
REPLACE_EVERY = Setting("replace_every", "int | None", None, _EVERY, least=1)
_UNTIL = "share of the run after which rigl, gse and cht replace no more"
REPLACE_UNTIL = Setting("replace_until", "float", 0.75, _UNTIL, least=0, most=1)
_DRAWN = "dormant connections that are drawn and compared by their gradient, as a multiple of the active ones"
CANDIDATES = Setting("candidates", "float", 1.0, _DRAWN, above=0)
