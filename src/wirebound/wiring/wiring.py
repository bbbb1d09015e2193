"""``Wiring``: the K active connections of one matrix or of many, in arrays that are exactly K long.

    theta    K parameters θ >= 0, one ``nn.Parameter``; the weight is sign · θ
    packed_rows     K int32, row and sign of each connection (``ops/layout.py``)
    colptr   where each input column starts, over the columns of all layers

More than K connections cannot exist, because the arrays are K long. The Parameter never changes identity or size.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch._C import _get_dispatch_mode, _TorchDispatchModeKey

from wirebound import ops
from wirebound.ops import philox
from wirebound.ops.faults import WiringError
from wirebound.ops.layout import Geometry, LayerIndex, rows_of
from wirebound.wiring import foreign, mapping
from wirebound.wiring import init as initial
from wirebound.wiring.budget import whole
from wirebound.wiring.constraints import Constraints, require_room, settle_caps, settle_signs
from wirebound.wiring.draw import draw_first, draw_newborns, fault_of_newborns
from wirebound.wiring.fault import find_fault, index_fault
from wirebound.wiring.rates import LayerRates
from wirebound.wiring.trust import IndexKey, theta_fault, version_of

T = TypeVar("T")
_DERIVED = (
    *("_trusted", "_trusted_before", "_bounds", "_indices", "_seen", "_split", "_origin", "_said_dormant"),
    *("kinship", "alone"),
)


@dataclass(frozen=True)
class LayerShape:
    """One matrix of a wiring: outputs are rows, inputs are columns."""

    name: str
    n_out: int
    n_in: int

    @property
    def possible(self) -> int:
        return self.n_out * self.n_in


class _Registered(Generic[T]):
    """A parameter or buffer of a module as an attribute, past ``nn.Module.__getattr__``: it is asked for several times
    in a step, and the long way takes longer than the arithmetic of a small one."""

    def __init__(self, registry: str) -> None:
        self.registry = registry

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: nn.Module, owner: type) -> T:
        try:
            return cast(T, module.__dict__[self.registry][self.name])
        except KeyError:
            raise AttributeError(f"{owner.__name__} has no {self.name!r} yet") from None


class GradientSource(Protocol):
    """What a backward pass leaves behind of one layer, so that the gradient of any weight can be had, active or not."""

    def block(self, first: int, last: int) -> Tensor:
        """∂E/∂w of the columns [first, last) of the layer's matrix, all rows: [n_out, last - first]."""
        ...


class Wiring(nn.Module):
    """One budget of connections over ``layers``.

    Args:
        layers: the matrices that share the budget.
        counts: connections of each layer at the start; their sum is the budget K.
        seed: decides positions, weights, signs and every later draw.
        index: number of this wiring in its model, so that two of the same seed draw different numbers.
        init: scale of the first weights, see ``wiring/init.py``.
        gain: factor on that scale.
        constraints: caps on the fan-in and fan-out of neurons, and signs that belong to them.
    """

    theta = _Registered[nn.Parameter]("_parameters")
    packed_rows = _Registered[Tensor]("_buffers")
    colptr = _Registered[Tensor]("_buffers")
    initial_counts: Tensor
    # None, or which of the K places hold a connection: for methods that may leave places empty. An empty place has
    # θ = 0, so layers need not know of it.
    alive: Tensor | None
    # None, or a dict by layer: each backward pass of a layer then leaves its source here (several if the layer is used
    # several times). For methods that grow connections by their gradient; they set it for the steps in which they do.
    watch: dict[int, list[GradientSource]] | None
    fan_caps: Tensor | None  # int64[2, layers]: most connections of an output and of an input neuron
    column_signs: Tensor | None  # int8, for each input neuron of all layers: 1, -1, or 0 where it is free
    identity: Tensor  # seed, index: the constant signs follow from them, so they are part of the state
    kinship: foreign.Kinship | None = None  # with its copies, or with what it is a copy of
    alone = False  # trained, so whatever it is a copy of
    rates: LayerRates | None = None  # None: no layer is frozen or has rates of its own
    claim: object | None = None  # the mark of the method that steps it; a later method puts its own
    # What is derived from the arrays, for as long as they stay the same (``forget``).
    _trusted: IndexKey | None  # which arrays were last checked
    _trusted_before: IndexKey | None  # the same, while they are being changed
    _bounds: list[int]  # where layers start in them
    _indices: dict[int, LayerIndex]
    _seen: tuple[Tensor | None, int]  # which θ was last checked
    _split: tuple[Tensor, tuple[int, int | None, bool, bool], tuple[Tensor, ...]] | None
    _origin: tuple[Tensor, int | None, list[int]] | None  # seed and index
    _said_dormant: bool

    def __init__(
        self,
        layers: Sequence[LayerShape],
        counts: Sequence[int],
        *,
        seed: int = 0,
        index: int = 0,
        init: str = "dense-fan-in",
        gain: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        super().__init__()
        seed = whole("seed", seed)
        if not 0 <= seed < 1 << 63:
            raise ValueError(f"seed (={seed}) must be in [0, 2^63)")
        if not 0 <= index < philox.MAX_WIRINGS:
            raise ValueError(f"wiring index (={index}) must be in [0, {philox.MAX_WIRINGS})")
        if len(layers) >= philox.MAX_WIRINGS:
            raise ValueError(f"a wiring must span fewer than {philox.MAX_WIRINGS} layers, not {len(layers)}")
        self.layers = tuple(layers)
        self.geometry = Geometry(tuple(s.n_out for s in layers), tuple(s.n_in for s in layers))
        device = torch.device("cpu" if device is None else device)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        self._constrain(constraints, counts, seed, index, device)
        if self.fan_caps is None:
            positions = initial.draw_positions(self.geometry, counts, seed, index, device)
        else:
            positions = draw_first(self.geometry, self.fan_caps, counts, seed, index, device)
        theta = initial.draw_theta(self.geometry, counts, seed, index, init, gain, device, dtype)
        self._fill(positions, self.negative_signs(positions), theta, counts)

    @classmethod
    def from_connections(
        cls,
        layers: Sequence[LayerShape],
        positions: Tensor,
        weights: Tensor,
        *,
        seed: int = 0,
        index: int = 0,
        constraints: Constraints | None = None,
    ) -> Wiring:
        """A wiring of given connections: sorted ``positions`` through all layers, and a weight for each.

        The sign of such a connection is that of its weight while it lives; born anew, it has its constant sign.
        They must keep the ``constraints``, if there are any.
        """
        wiring = cls.__new__(cls)
        nn.Module.__init__(wiring)
        wiring.layers = tuple(layers)
        wiring.geometry = Geometry(tuple(s.n_out for s in layers), tuple(s.n_in for s in layers))
        edges = torch.tensor(wiring.geometry.position_start, device=positions.device)
        bounds = torch.searchsorted(positions, edges).tolist()
        counts = [b - a for a, b in itertools.pairwise(bounds)]
        wiring._constrain(constraints, counts, seed, index, positions.device)
        negative = torch.where(weights == 0, wiring.negative_signs(positions), weights < 0)
        wiring._fill(positions, negative, weights.detach().abs(), counts)
        if constraints:
            wiring.check()
        return wiring

    def _constrain(
        self, constraints: Constraints | None, counts: Sequence[int], seed: int, index: int, device: torch.device
    ) -> None:
        """Note who it is and what it has to keep; before anything is drawn."""
        if _get_dispatch_mode(_TorchDispatchModeKey.FAKE) is not None:
            raise RuntimeError(
                "a wiring cannot be made under FakeTensorMode, because its positions are numbers that have to exist: "
                "build and sparsify the model outside"
            )
        self.forget()
        self.register_buffer("identity", torch.tensor([seed, index], dtype=torch.int64, device="cpu"))
        fan_caps, signs = settle_caps(constraints, self.layers), settle_signs(constraints, self.layers, seed, index)
        if constraints is not None:
            require_room(constraints, self.layers, counts)
        self.register_buffer("fan_caps", None if fan_caps is None else fan_caps.to(device))
        self.register_buffer("column_signs", None if signs is None else signs.to(device))
        self.constrained = fan_caps is not None or signs is not None  # fused steps do not know of them

    def _fill(self, positions: Tensor, negative: Tensor, theta: Tensor, counts: Sequence[int]) -> None:
        packed_rows, colptr = initial.build_index(self.geometry, positions, negative)
        self.register_parameter("theta", nn.Parameter(theta))
        self.register_buffer("packed_rows", packed_rows)
        self.register_buffer("colptr", colptr)
        self.register_buffer("initial_counts", torch.tensor(counts, dtype=torch.int64, device="cpu"))
        self.register_buffer("alive", None)
        self.sign_bound = True
        self.watch: dict[int, list[GradientSource]] | None = None
        foreign.enter(self)

    # What it is

    @property
    def budget(self) -> int:
        """K, the number of connections that this wiring may have, and has unless it keeps places empty."""
        return self.theta.numel()

    @property
    def active(self) -> int:
        """Active connections now, counted."""
        return sum(self.layer_active)

    @property
    def seed(self) -> int:
        return self._identity()[0]

    @property
    def index(self) -> int:
        """Number of this wiring in its model."""
        return self._identity()[1]

    def _identity(self) -> list[int]:
        """Seed and index, as the buffer has them now: a state dict or another rank may have written it."""
        identity: Tensor = self._buffers["identity"]  # type: ignore[assignment]  # quicker than the attribute
        known = self._origin
        if known is None or known[0] is not identity or known[1] != version_of(identity):
            known = self._origin = (identity, version_of(identity), identity.tolist())
        return known[2]

    @property
    def possible(self) -> int:
        return self.geometry.possible

    @property
    def connectivity(self) -> float:
        return self.budget / self.possible

    @property
    def nbytes(self) -> int:
        """Bytes of all that the wiring keeps: parameters, index and column pointers (gradients not included)."""
        arrays = (self.theta, self.packed_rows, self.colptr, *(() if self.alive is None else (self.alive,)))
        return sum(t.numel() * t.element_size() for t in arrays)

    @property
    def bounds(self) -> list[int]:
        """Where each layer's connections start in the arrays, and K at the end."""
        self._examine()
        return self._bounds

    def _examine(self) -> None:
        """Check the positions if somebody else has written them since they were last checked: O(1) if not, else O(K)."""
        packed_rows, colptr = self._buffers.get("packed_rows"), self._buffers.get("colptr")
        if self._trusted is not None and self._trusted.holds(packed_rows, colptr):
            return
        if packed_rows is None or colptr is None:
            raise WiringError("the positions of a wiring are gone: its buffers were removed")
        self._indices = {}
        self._split = None
        key = IndexKey.of(packed_rows, colptr)
        fault = index_fault(self.geometry, self.theta.numel(), packed_rows, colptr)
        if fault:
            raise WiringError(f"{self._names()}: {fault}; its positions were written by something else than its method")
        edges = torch.tensor(self.geometry.column_start, device=colptr.device)
        self._bounds = colptr[edges].tolist()
        self._trusted = key

    def _names(self) -> str:
        return "wiring over " + ", ".join(layer.name for layer in self.layers)

    @property
    def layer_places(self) -> list[int]:
        """Places of each layer in the arrays, empty ones included."""
        bounds = self.bounds
        return [b - a for a, b in itertools.pairwise(bounds)]

    @property
    def layer_active(self) -> list[int]:
        """Active connections of each layer, counted."""
        active = self.alive
        if active is None:
            if not self.sign_bound:
                return self.layer_places
            active = self.theta.detach() >= 0
        return [int(active[a:b].sum()) for a, b in itertools.pairwise(self.bounds)]

    def layer_inputs(self, part: int) -> list[int]:
        """Connections that leave each input of a layer."""
        colptr = self.layer_index(part).layer_colptr()
        if self.alive is None:
            return colptr.diff().tolist()
        before = torch.cat((colptr.new_zeros(1), self.alive.cumsum(0)))
        return before[colptr].diff().tolist()

    def positions(self) -> Tensor:
        """The sorted position of each connection, int64, counted input-major through all layers."""
        return self.geometry.positions(self.packed_rows, self.colptr)

    def check(self) -> None:
        """Raise ``WiringError`` unless this is exactly K distinct, sorted, valid, finite connections."""
        if self.kinship is not None:
            foreign.look(self)
        fault = find_fault(self)
        if fault is not None:
            raise WiringError(f"{self._names()}: {fault}")

    # What layers take from it

    def layer_theta(self, part: int) -> Tensor:
        """θ of one layer, as autograd sees it.

        All layers of a wiring share one split of θ in each forward pass, so that its backward is one concatenation
        instead of a K-long tensor of zeros for every layer. The split belongs to the very tensor it was made of.
        """
        if self.kinship is not None and part == 0:  # once in a forward pass
            foreign.look(self)
        theta = self.readable_theta()
        if len(self.layers) == 1:
            return self._as_weights(theta)
        self._examine()
        key = (theta.data_ptr(), version_of(theta), theta.requires_grad, torch.is_grad_enabled())
        split = self._split
        if split is None or split[0] is not theta or split[1] != key:
            split = self.__dict__["_split"] = (theta, key, self._as_weights(theta).split(self.layer_places))
        return split[2][part].detach() if self.is_frozen(part) else split[2][part]

    def readable_theta(self) -> Tensor:
        """θ, unless somebody has put a tensor there that the kernels cannot read: that is refused."""
        theta = self._parameters.get("theta")  # nn.Module takes longer to find an attribute
        if theta is None or self._seen[0] is not theta or self._seen[1] != theta.data_ptr():
            self.examine_theta()
        assert theta is not None
        return theta

    def examine_theta(self) -> None:
        """Refuse what cannot take the place of θ, also where it is a piece of the same tensor."""
        theta = self._parameters.get("theta")
        fault = theta_fault(theta, self._buffers["packed_rows"])
        if fault:
            raise WiringError(f"{self._names()}: {fault}")
        assert theta is not None
        self.__dict__["_seen"] = (theta, theta.data_ptr())

    def _as_weights(self, theta: Tensor) -> Tensor:
        """On the CPU, θ itself: whoever reads it looks for θ < 0. Elsewhere looking would wait for the device."""
        if theta.is_cpu or not self.sign_bound:
            return theta
        return torch.where(theta >= 0, theta, theta.new_zeros(()))

    def dormant_as_zero(self, theta: Tensor) -> Tensor:
        """θ as the paper maps it to weights, where some are below 0: those are dormant, weight 0 and no gradient.

        After a step of a method there are none. So somebody else has moved θ, and is told once.
        """
        if not self._said_dormant:
            self._said_dormant = True
            lost = int((self.theta < 0).sum())
            warnings.warn(
                f"{self._names()}: {lost} of {self.budget} connections have θ < 0 and count as dormant, weight 0, until the "
                "next step of the method. Something else has moved θ: optimizer.step() without the method, a second "
                "optimiser, or p.data. Let the method take the step (rewiring.step()).",
                RuntimeWarning,
                stacklevel=4,
            )
        return torch.where(theta >= 0, theta, theta.new_zeros(()))

    def layer_index(self, part: int) -> LayerIndex:
        """Where one layer's connections are."""
        self._examine()
        index = self._indices.get(part)
        if index is None or index.bound is not self.sign_bound:
            first, last = self.geometry.column_start[part : part + 2]
            start, end = self._bounds[part : part + 2]
            index = LayerIndex(self.packed_rows, self.colptr, start, end, first, last, self.sign_bound)
            self._indices[part] = index
        return index

    def layer_dense(self, part: int) -> Tensor:
        """The layer as a dense matrix [n_out, n_in]. Dense by nature: for export and for tests."""
        if self.kinship is not None:
            foreign.look(self)
        index, shape = self.layer_index(part), self.layers[part]
        theta = self.theta.detach()[index.start : index.end]
        if self.sign_bound:
            theta = theta.clamp(min=0)  # what is below 0 is dormant
        return mapping.scatter(theta, index.layer_packed_rows(), index.layer_colptr(), shape.n_out, shape.n_in)

    # What layers have of their own

    @property
    def layer_rates(self) -> LayerRates:
        """Factors on the optimiser's rates and who is frozen, for each layer."""
        return LayerRates.plain(len(self.layers)) if self.rates is None else self.rates

    def set_layer_rates(self, rates: LayerRates) -> None:
        self.rates = None if rates.are_plain else rates

    @property
    def has_frozen(self) -> bool:
        """Whether some layer is frozen."""
        return self.rates is not None and any(self.rates.frozen)

    def is_frozen(self, part: int) -> bool:
        """Whether the connections of a layer stay as they are."""
        return self.rates is not None and self.rates.frozen[part]

    def in_frozen(self, device: torch.device | None = None) -> Tensor:
        """Which of the K places belong to frozen layers."""
        frozen = torch.tensor(self.layer_rates.frozen, device="cpu")
        return torch.repeat_interleave(frozen, torch.tensor(self.layer_places)).to(device or self.theta.device)

    # What methods do to it

    def rewire_(
        self, dead: Tensor, carried: Sequence[tuple[Tensor, float]], step: int, shares: Sequence[float] | None
    ) -> tuple[list[int], list[int]]:
        """Replace the ``dead`` (sorted indices) by newborns with θ = 0; (born, died) of each layer.

        ``carried`` are the arrays that move along, each with the value of a newborn.
        """
        if self.constrained or self.has_frozen:
            positions = self.positions()
            alive = torch.ones(self.budget, dtype=torch.bool, device=dead.device)
            alive[dead] = False
            newborns = draw_newborns(self, positions[alive], positions[dead], step, shares=shares)
            return self.replace_(dead, newborns, carried)
        theta = self.theta.detach()
        before = self.changing()
        born, died = ops.rewire_(
            self.geometry,
            self.colptr,
            self.packed_rows,
            [(theta, 0), *carried],
            dead,
            self.seed,
            self.index,
            step,
            shares,
        )
        self.changed(before, born, died)
        return born, died

    def negative_signs(self, positions: Tensor) -> Tensor:
        """Whether the constant sign of each position is -1: that of its input neuron, or else a hash of the position."""
        negative = ops.negative_signs(positions, self.seed, self.index)
        if self.column_signs is None:
            return negative
        own = self.column_signs[self.geometry.locate(positions)[0]]
        return torch.where(own == 0, negative, own < 0)

    def replace_(
        self,
        dead: Tensor,
        newborns: Tensor,
        carried: Sequence[tuple[Tensor, float | Tensor]],
        strength: float | Tensor = 0.0,
    ) -> tuple[list[int], list[int]]:
        """Replace the ``dead`` (sorted indices) by as many ``newborns`` (sorted positions that are not active, or
        die); (born, died) of each layer.

        A newborn's weight is ``strength``, a number >= 0 or one for each, with the constant sign of its position.
        ``carried`` are the arrays that move along, each with the value, or the values, of newborns.
        """
        alive = torch.ones(self.budget, dtype=torch.bool, device=dead.device)
        alive[dead] = False
        fault = fault_of_newborns(self, self.positions()[alive], newborns, dead.numel())
        if fault is not None:
            raise ValueError(fault)
        negative = self.negative_signs(newborns)
        theta = self.theta.detach()
        fill: float | Tensor = strength
        if not self.sign_bound:
            fill = torch.where(negative, -1.0, 1.0).to(theta.dtype) * strength
            negative = torch.zeros_like(negative)
        moving = [(theta, fill), *carried]
        before = self.changing()
        born, died = ops.replace_(self.geometry, self.colptr, self.packed_rows, moving, dead, newborns, negative)
        self.changed(before, born, died)
        return born, died

    def changing(self) -> list[int]:
        """Call before the arrays are written: where layers start now, for ``changed`` afterwards.

        In between nothing that was derived from the arrays counts any more, so that an interrupt at any moment leaves
        arrays that are looked at again, not a memory of how they were.
        """
        before = self.bounds
        # nn.Module takes longer to set an attribute than a small step takes.
        self.__dict__.update(_trusted=None, _trusted_before=self._trusted, _split=None)
        return before

    def changed(self, before: list[int], born: Sequence[int], died: Sequence[int]) -> None:
        """So many connections of each layer were born and died, by a kernel that leaves a valid wiring."""
        if self.kinship is not None:
            foreign.go_alone(self)  # a copy that moves by itself is no copy any more
        moved, bounds = 0, [0]
        for start, new, gone in zip(before[1:], born, died, strict=True):
            moved += new - gone
            bounds.append(start + moved)
        self.__dict__.update(_indices={}, _bounds=bounds, _trusted=IndexKey.of(self.packed_rows, self.colptr, self._trusted_before))

    def keep_empty_places_(self) -> Tensor:
        """From now on note which places hold a connection, at first all; the mask, for a method to change."""
        self.alive = torch.ones(self.budget, dtype=torch.bool, device=self.theta.device)
        return self.alive

    @torch.no_grad()
    def release_signs_(self) -> None:
        """Let weights cross zero: θ becomes the weight itself, as methods without constant signs need it.

        Signs that belong to neurons stay bound all the same: such a method then has to stop θ at 0.
        """
        self.alive = None  # every place is a connection again, an empty one a connection of weight 0
        if self.sign_bound and self.column_signs is None:
            self.theta.copy_(mapping.weights(self.theta, self.packed_rows))
            self.packed_rows.copy_(rows_of(self.packed_rows))
            self.sign_bound = False

    @torch.no_grad()
    def bind_signs_(self) -> None:
        """Back to θ >= 0 and constant signs, those that the weights have now."""
        self.alive = None
        if not self.sign_bound:
            self.packed_rows.copy_(torch.where(self.theta < 0, self.packed_rows | -(1 << 31), self.packed_rows))
            self.theta.abs_()
            self.sign_bound = True

    def forget(self) -> None:
        """Drop what was derived from the arrays: the next use looks at them again."""
        self._trusted = None
        self._trusted_before = None
        self._bounds = []
        self._indices = {}
        self._seen = (None, 0)
        self._split = None
        self._origin = None
        self._said_dormant = False

    # State

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "sign_bound"] = torch.tensor(self.sign_bound, device="cpu")

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        given = {name: state_dict[prefix + name] for name in self.state_dict() if prefix + name in state_dict}
        fault = self._loading_fault(given)
        if fault:  # nothing of it is taken; load_state_dict raises with all such messages
            error_msgs.append(f"{prefix[:-1] or 'the wiring'}: {fault}")
            return
        sign_bound = state_dict.pop(prefix + "sign_bound", None)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if sign_bound is not None:
            state_dict[prefix + "sign_bound"] = sign_bound
            self.sign_bound = bool(sign_bound)
        self.forget()
        if {"theta", "packed_rows", "colptr"} <= set(given):
            foreign.load(self)

    def _loading_fault(self, given: Mapping[str, Tensor]) -> str | None:
        """Why these arrays of a state dict may not be loaded, or None."""
        mine = self.state_dict()
        for name, value in given.items():
            if name != "theta" and value.dtype is not mine[name].dtype:
                return (
                    f"{name} must be {mine[name].dtype}, is {value.dtype}: positions are whole numbers, load the state "
                    "dict as it was saved"
                )
        if not {"theta", "packed_rows", "colptr"} <= set(given):
            return None  # what is written is checked when it is used next
        if given["theta"].shape != mine["theta"].shape:
            return None  # torch says it
        fault = index_fault(self.geometry, self.budget, given["packed_rows"], given["colptr"])
        return fault or foreign.mixture_in(self, given["theta"], given["packed_rows"], given["colptr"])

    def _apply(self, fn: Any, recurse: bool = True) -> Wiring:
        self.forget()  # slices belong to the old storage
        right = foreign.is_right_copy(self)
        super()._apply(fn, recurse)
        if right:
            foreign.accept(self)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # What is derived belongs to these very tensors; the split is even a piece of an autograd graph.
        kept = {name: value for name, value in self.__dict__.items() if name not in _DERIVED}
        return {**kept, "watch": None, "_copied": foreign.note_for_copy(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        note = state.pop("_copied", None)
        super().__setstate__(state)
        self.forget()
        foreign.become_copy(self, note)

    def extra_repr(self) -> str:
        return f"budget={self.budget}, possible={self.possible}, layers={len(self.layers)}"
