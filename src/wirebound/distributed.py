"""Data-parallel training with torch's own ``DistributedDataParallel``: what a sparse model needs beside it.

    dist.init_process_group("gloo")
    ddp = wb.distributed.wrap(model)
    rewiring = wb.DeepR(ddp, optimizer)
    for batch in batches:                                    # the same global batch on every rank
        mine = wb.distributed.part(batch)
        loss = F.cross_entropy(ddp(x[mine]), y[mine], reduction="sum") * wb.distributed.sum_weight(len(batch))

Nothing about a wiring travels in a step: its random numbers are a function of (seed, stream, step), and all-reduced
gradients are the same bits on every rank, so all ranks take the same deaths and births. ``check`` makes sure.
"""

import hashlib
import json
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from wirebound.methods import Method
from wirebound.methods.method import model_checks
from wirebound.nn.sparse_layer import wirings
from wirebound.ops import library
from wirebound.version import __version__
from wirebound.wiring import Wiring

CHECK_EVERY = 100


class RanksDifferError(RuntimeError):
    """The ranks of a job no longer hold the same; the message says which rank, what, and since when at the latest."""


def _grouped() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """The number of this process, 0 where there is only one."""
    return dist.get_rank() if _grouped() else 0


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if _grouped() else 1


def wrap(model: nn.Module, *, check_every: int = CHECK_EVERY, **settings: Any) -> DistributedDataParallel:
    """``DistributedDataParallel(model, **settings)`` that trains a sparse model without sending its wiring around.

    Ranks that could not stay together are refused: other shapes, versions or kernels. All ranks start with the wiring of
    rank 0. Buffers of wirings are not sent in forward passes; for others ``broadcast_buffers`` holds.

    Args:
        model: a sparsified model, the same on all ranks, on the device where it is trained.
        check_every: training passes between comparisons of the wirings of all ranks; 0 for none.
        settings: those of ``DistributedDataParallel``.
    """
    if not _grouped():
        raise ValueError("wrap needs a process group: call torch.distributed.init_process_group(...) first")
    if check_every < 0:
        raise ValueError(f"check_every (={check_every}) must be >= 0")
    found = wirings(model)
    _require_same_build(found)
    for wiring in found:
        _broadcast(wiring)
    own = {id(buffer) for wiring in found for buffer in wiring.buffers()}
    left_out = [name for name, buffer in model.named_buffers() if id(buffer) in own]
    left_out += getattr(model, "_ddp_params_and_buffers_to_ignore", [])
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, left_out)
    ddp = DistributedDataParallel(model, **settings)
    passes = 0

    def before_forward(module: nn.Module, _: Any) -> None:
        nonlocal passes
        if module.training and torch.is_grad_enabled():
            if passes % check_every == 0:
                _compare(found, f"after {passes} training passes")
            passes += 1

    if check_every and found:
        ddp.register_forward_pre_hook(before_forward)
    return ddp


def check(method: Method, every: int = 1) -> None:
    """Raise ``RanksDifferError`` unless all ranks hold the same wirings; in every ``every``-th step; all ranks call it."""
    if world_size() > 1 and method.steps % every == 0:
        _compare(wirings(method.model), f"after step {method.steps}", extra=method.steps)


def require_same_wirings(model: nn.Module) -> None:
    """Raise ``RanksDifferError`` if ranks of a wrapped model began with other wirings; a collective call of methods."""
    hint = "build the model with one seed on all ranks, use broadcast_buffers=True, or wb.distributed.wrap"
    if isinstance(model, DistributedDataParallel) and model.process_group.size() > 1 and (found := wirings(model)):
        _compare(found, "before the first step", group=model.process_group, hint=hint)


model_checks.append(require_same_wirings)


def part(batch: Tensor, of: int | None = None, number: int | None = None) -> Tensor:
    """The examples of a global batch that this rank takes: neighbours, numbers as even as can be, perhaps none."""
    return batch.tensor_split(world_size() if of is None else of)[rank() if number is None else number]


def sum_weight(total: int) -> float:
    """The factor that makes this rank's summed loss its share of the mean loss of a global batch, however it splits."""
    return world_size() / total


def fingerprint(found: list[Wiring], extra: int = 0) -> int:
    """64 bits of everything in these wirings that the next step depends on."""
    digest = hashlib.blake2b(digest_size=8)
    for wiring in found:
        digest.update(json.dumps([extra, wiring.seed, wiring.index, wiring.sign_bound]).encode())
        for tensor in (wiring.theta, wiring.packed_rows, wiring.colptr, *(() if wiring.alive is None else (wiring.alive,))):
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return int.from_bytes(digest.digest(), "little", signed=True)


_ALIKE = "every rank must step with the same gradients, settings and learning rate; resume from the last checkpoint"


def _compare(
    found: list[Wiring], when: str, extra: int = 0, *, group: dist.ProcessGroup | None = None, hint: str = _ALIKE
) -> None:
    mine = torch.tensor([fingerprint(found, extra)], dtype=torch.int64, device=_device())
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, mine, group=group)
    values = [int(value) for value in everyone]
    others = [number for number, value in enumerate(values) if value != values[0]]
    if others:
        who = f"rank {others[0]} holds" if len(others) == 1 else f"ranks {', '.join(map(str, others))} hold"
        raise RanksDifferError(f"{when}, {who} another wiring than rank 0: {hint}")


def _require_same_build(found: list[Wiring]) -> None:
    """Ranks whose arithmetic or shapes differ would drift apart, or hang in a collective: say so at once."""
    shapes = [[w.budget, [[s.n_out, s.n_in] for s in w.layers], str(w.theta.dtype)] for w in found]
    kept = [[None if t is None else len(t) for t in (w.fan_caps, w.column_signs)] for w in found if w.constrained]
    about: dict[str, Any] = {"wirebound": __version__, "torch": torch.__version__, "kernels": library.isa() or "none"}
    about["wirings"] = hashlib.sha256(json.dumps(shapes + kept).encode()).hexdigest()[:12]
    about["connections"] = sum(w.budget for w in found)
    hints = dict.fromkeys(("wirings", "connections"), "build the same model with the same budget on all ranks")
    hints["kernels"] = "their rounding differs: set WIREBOUND_ISA to the lower one on all ranks"
    everyone: list[dict[str, Any]] = [json.loads(text) for text in _gather(json.dumps(about))]
    for number, other in enumerate(everyone):
        for key, value in other.items():
            if value != everyone[0][key]:
                hint = hints.get(key, "install the same version everywhere")
                raise RanksDifferError(f"rank {number} has {key} (={value}), rank 0 has {everyone[0][key]}; {hint}")


def _gather(text: str) -> list[str]:
    """The text of every rank. As bytes: torch's gathering of objects would go through pickle."""
    content = torch.tensor(list(text.encode()), dtype=torch.uint8, device=_device())
    length = torch.tensor([len(content)], device=_device())
    lengths = [torch.empty_like(length) for _ in range(world_size())]
    dist.all_gather(lengths, length)
    padded = torch.zeros(max(int(n) for n in lengths), dtype=torch.uint8, device=_device())
    padded[: len(content)] = content
    everyone = [torch.empty_like(padded) for _ in range(world_size())]
    dist.all_gather(everyone, padded)
    return [bytes(t[: int(n)].tolist()).decode() for t, n in zip(everyone, lengths, strict=True)]


@torch.no_grad()
def _broadcast(wiring: Wiring) -> None:
    """The wiring of rank 0 everywhere; θ itself is a parameter, which DDP sends."""
    bound = torch.tensor([wiring.sign_bound])
    constraints = [tensor for tensor in (wiring.fan_caps, wiring.column_signs) if tensor is not None]
    for tensor in (wiring.packed_rows, wiring.colptr, wiring.initial_counts, wiring.identity, bound, *constraints):
        sent = tensor.to(_device())
        dist.broadcast(sent, 0)
        tensor.copy_(sent)
    wiring.sign_bound = bool(bound)
    wiring.forget()


def _device() -> torch.device:
    """Where tensors must be to be sent: nccl only knows those of the graphics card."""
    nccl = dist.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
