"""``Connections``: the arrays of K connections, and what is derived from them for as long as they stay the same."""

import itertools
import warnings
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from wirebound import ops
from wirebound.ops.faults import WiringError
from wirebound.ops.layout import Geometry, LayerIndex
from wirebound.wiring import copies
from wirebound.wiring.layers import LayerRates, LayerShape
from wirebound.wiring.trust import IndexKey, index_fault, theta_fault, version_of

T = TypeVar("T")
_ARRAYS = {"theta", "packed_rows", "colptr"}


def listed(counts: ops.Counts) -> list[Any]:
    """Counts as a list; those of another device as scalars that stay there."""
    return list(counts.unbind()) if isinstance(counts, Tensor) else list(counts)


class _Registered(Generic[T]):
    """A parameter or buffer as an attribute, past ``nn.Module.__getattr__``, which takes longer than a small step."""

    def __init__(self, registry: str, name: str) -> None:
        self.registry, self.name = registry, name

    def __get__(self, module: nn.Module, owner: type) -> T:
        try:
            return cast(T, module.__dict__[self.registry][self.name])
        except KeyError:
            raise AttributeError(f"{owner.__name__} has no {self.name!r} yet") from None


class Connections(nn.Module):
    """θ, rows, signs and column pointers of K connections over some layers: what layers compute with."""

    theta = _Registered[nn.Parameter]("_parameters", "theta")
    packed_rows = _Registered[Tensor]("_buffers", "packed_rows")
    colptr = _Registered[Tensor]("_buffers", "colptr")
    layers: tuple[LayerShape, ...]
    geometry: Geometry
    sign_bound: bool  # θ >= 0 and the sign is constant; otherwise θ is the weight itself
    rates: LayerRates | None = None  # None: no layer is frozen or has rates of its own
    kinship: copies.Kinship | None = None  # with its copies, or with what it is a copy of
    alone = False  # trained, so no copy of anything
    # What is derived from the arrays (``forget``).
    _trusted: IndexKey | None  # which arrays were last checked
    _trusted_before: IndexKey | None  # the same, while they are being changed
    _bounds: list[int]  # where layers start in them
    _indices: dict[int, LayerIndex]
    _seen: tuple[Tensor | None, int, torch.Size, torch.dtype | None]  # which θ was last checked
    _split: tuple[Tensor, tuple[int, int | None, bool, bool], tuple[Tensor, ...]] | None
    _origin: tuple[Tensor, int | None, list[int]] | None  # seed and index
    _said_dormant: bool

    def forget(self) -> None:
        """Drop what was derived from the arrays: the next use looks at them again."""
        self.__dict__.update(_trusted=None, _trusted_before=None, _bounds=[], _indices={}, _split=None, _origin=None)
        self.__dict__.update(_seen=(None, 0, torch.Size(), None), _said_dormant=False)

    def _names(self) -> str:
        return "wiring over " + ", ".join(layer.name for layer in self.layers)

    @property
    def bounds(self) -> list[int]:
        """Where each layer's connections start in the arrays, and K at the end; another device than the CPU is waited for."""
        self.examine_index()
        if not self._bounds:
            edges = torch.tensor(self.geometry.column_start, device=self.colptr.device)
            self.__dict__["_bounds"] = self.colptr.index_select(0, edges).tolist()
        return self._bounds

    @property
    def is_whole(self) -> bool:
        """Whether layers compute with the whole arrays, because only the device knows where they start in them."""
        return ops.whole_wirings(self.theta)

    @property
    def layer_places(self) -> list[int]:
        return [b - a for a, b in itertools.pairwise(self.bounds)]

    def examine_index(self) -> None:
        """Check the positions if something else has written them since they were last checked: O(1) if not, else O(K)."""
        packed_rows, colptr = self._buffers.get("packed_rows"), self._buffers.get("colptr")
        if self._trusted is not None and self._trusted.holds(packed_rows, colptr):
            return
        if packed_rows is None or colptr is None:
            raise WiringError("the positions of a wiring are gone: its buffers were removed")
        if isinstance(packed_rows, FakeTensor) and isinstance(colptr, FakeTensor):
            self.__dict__.update(_indices={}, _split=None, _trusted=None)  # there is nothing to look at
            return
        # nn.Module takes longer to set an attribute than a small step takes.
        self.__dict__.update(_indices={}, _split=None)
        key = IndexKey.of(packed_rows, colptr)
        if fault := index_fault(self.geometry, self.theta.numel(), packed_rows, colptr):
            raise WiringError(f"{self._names()}: {fault}; its positions were written by something else than its method")
        self.__dict__.update(_bounds=[], _trusted=key)

    def layer_index(self, layer_id: int) -> LayerIndex:
        self.examine_index()
        index = self._indices.get(layer_id)
        if index is None or index.bound is not self.sign_bound:
            first, last = self.geometry.column_start[layer_id : layer_id + 2]
            start, end = (0, self.theta.numel()) if self.is_whole else self.bounds[layer_id : layer_id + 2]
            index = LayerIndex(self.packed_rows, self.colptr, start, end, first, last, self.sign_bound)
            self._indices[layer_id] = index
        return index

    def layer_theta(self, layer_id: int) -> Tensor:
        """θ of one layer, as autograd sees it.

        All layers share one split of θ in each forward pass, so that its backward is one concatenation.
        """
        if self.kinship is not None and layer_id == 0:  # once in a forward pass
            copies.look(self)
        theta = self.readable_theta()
        if len(self.layers) == 1:
            return theta
        if ops.whole_wirings(theta):
            return theta.detach() if self.is_frozen(layer_id) else theta
        self.examine_index()
        key = (theta.data_ptr(), version_of(theta), theta.requires_grad, torch.is_grad_enabled())
        split = self._split
        if split is None or split[0] is not theta or split[1] != key:
            split = self.__dict__["_split"] = (theta, key, theta.split(self.layer_places))
        return split[2][layer_id].detach() if self.is_frozen(layer_id) else split[2][layer_id]

    def is_frozen(self, layer_id: int) -> bool:
        return self.rates is not None and self.rates.frozen[layer_id]

    def readable_theta(self) -> Tensor:
        """θ; refused if it was exchanged for a tensor that the kernels cannot read."""
        theta = self._parameters.get("theta")  # nn.Module takes longer to find an attribute
        if type(theta) is not nn.Parameter and isinstance(theta, FakeTensor):
            return theta
        if theta is None or self._seen[0] is not theta or self._seen[1] != theta.data_ptr():
            self.examine_theta()
        return cast(Tensor, theta)

    def examine_theta(self) -> None:
        """Refuse what cannot take the place of θ, also where it is a piece of the same tensor."""
        theta = self._parameters.get("theta")
        if isinstance(theta, FakeTensor):
            return
        seen, at, shape, dtype = self._seen
        if (
            theta is not None and theta is seen and type(theta) is nn.Parameter and theta.data_ptr() == at
            # In the same memory it may still be a piece of what it was, or another view.
            and theta.dtype is dtype and theta.shape == shape and theta.is_contiguous() and not theta.is_neg()
        ):  # fmt: skip
            return
        if fault := theta_fault(theta, self._buffers["packed_rows"]):
            raise WiringError(f"{self._names()}: {fault}")
        found = cast(Tensor, theta)
        self.__dict__["_seen"] = (found, found.data_ptr(), found.shape, found.dtype)

    def dormant_as_zero(self, theta: Tensor) -> Tensor:
        """θ as the paper maps it to weights, where some are below 0 (which is said once): dormant, weight 0, no gradient."""
        if not self._said_dormant:
            self._said_dormant = True
            below = f"{int((self.theta < 0).sum())} of {self.theta.numel()} connections have θ < 0"
            why = "Something else has moved θ: optimizer.step() without the method, a second optimiser, or p.data."
            says = f"{self._names()}: {below} and count as dormant, weight 0, until the next step of the method. {why}"
            warnings.warn(f"{says} Let the method take the step (rewiring.step()).", RuntimeWarning, stacklevel=4)
        return torch.where(theta >= 0, theta, theta.new_zeros(()))

    def changing(self) -> list[int]:
        """Call before the arrays are written: where layers start now, for ``changed`` afterwards.

        In between nothing derived from the arrays counts, so that after an interrupt they are looked at again.
        """
        before = [] if self.is_whole else self.bounds
        self.examine_index()
        own = self.__dict__  # nn.Module takes longer to set an attribute
        own["_trusted_before"], own["_trusted"], own["_split"] = own["_trusted"], None, None
        return before

    def changed(self, before: list[int], born: ops.Counts, died: ops.Counts) -> tuple[list[int], list[int]]:
        """So many connections of each layer were born and died, by a kernel that leaves a valid wiring; as numbers, which
        are on the device where it is not to be waited for."""
        if self.kinship is not None:
            copies.go_alone(self)  # a copy that moves by itself is no copy any more
        if not before:
            self.starts_at([])
            return listed(born), listed(died)
        born, died = ops.numbers(born), ops.numbers(died)
        moved, bounds = 0, [0]
        for start, new, gone in zip(before[1:], born, died, strict=True):
            moved += new - gone
            bounds.append(start + moved)
        self.starts_at(bounds)
        return born, died

    def starts_at(self, bounds: list[int]) -> None:
        """After ``changing``: a kernel has left a valid wiring, whose layers start there."""
        own, buffers = self.__dict__, self._buffers
        if isinstance(buffers["packed_rows"], FakeTensor):
            own["_bounds"] = bounds
            return
        key = IndexKey.of(cast(Tensor, buffers["packed_rows"]), cast(Tensor, buffers["colptr"]), self._trusted_before)
        own["_indices"], own["_bounds"], own["_trusted"] = {}, bounds, key

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "sign_bound"] = torch.tensor(self.sign_bound, device="cpu")

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: list[str]
    ) -> None:
        if prefix + "code" in state_dict:  # the name of packed_rows in earlier versions
            state_dict.setdefault(prefix + "packed_rows", state_dict.pop(prefix + "code"))
        given = {name: state_dict[prefix + name] for name in self.state_dict() if prefix + name in state_dict}
        if fault := self._loading_fault(given):  # nothing of it is taken; load_state_dict raises with all such messages
            errors.append(f"{prefix[:-1] or 'the wiring'}: {fault}")
            return
        sign_bound = state_dict.pop(prefix + "sign_bound", None)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)
        if sign_bound is not None:
            self.sign_bound = bool(sign_bound)
        self.forget()
        if set(given) >= _ARRAYS:
            copies.load(self)

    def _loading_fault(self, given: Mapping[str, Tensor]) -> str | None:
        mine = self.state_dict()
        for name, value in given.items():
            if name != "theta" and value.dtype is not (wanted := mine[name].dtype):
                rule = "positions are whole numbers, load the state dict as it was saved"
                return f"{name} must be {wanted}, is {value.dtype}: {rule}"
        if not set(given) >= _ARRAYS or given["theta"].shape != mine["theta"].shape:
            return None  # what is written is checked when it is used next; torch refuses other shapes
        fault = index_fault(self.geometry, mine["theta"].numel(), given["packed_rows"], given["colptr"])
        return fault or copies.mixture_in(self, given["theta"], given["packed_rows"], given["colptr"])

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        if fn(torch.empty(0, device="cpu")).device.type == "mps":
            raise ValueError("a sparse model cannot be moved to mps, which has no float64: use wb.to_dense(model), or stay on the CPU")
        self.forget()  # slices belong to the old storage
        right = copies.is_right_copy(self)
        super()._apply(fn, recurse)
        if right:
            copies.accept(self)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # What is derived belongs to these very tensors; the split is even a piece of an autograd graph.
        derived = ("_trusted", "_trusted_before", "_bounds", "_indices", "_seen", "_split", "_origin", "_said_dormant")
        kept = {name: value for name, value in self.__dict__.items() if name not in (*derived, "kinship", "alone")}
        return {**kept, "watch": None, "_copied": copies.note_for_copy(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        note = state.pop("_copied", None)
        super().__setstate__(state)
        self.forget()
        copies.become_copy(self, note)
