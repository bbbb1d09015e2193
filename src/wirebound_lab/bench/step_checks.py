"""That the paths of a training step agree: sparse with dense, fused with modules."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from wirebound.engine.modules import ModuleEngine
from wirebound.nn.sparse_layer import sparse_layers, wirings
from wirebound.nn.to_dense import to_dense
from wirebound.ops.layout import rows_of, signs_of
from wirebound_lab.bench.examples import Examples
from wirebound_lab.bench.networks import BATCH, LR, build, fused_engine
from wirebound_lab.bench.results import WrongAnswerError


def check_gradients(hidden: Sequence[int], examples: Examples) -> None:
    """The sparse model computes the loss and the gradients of its dense twin."""
    model, _ = build(hidden, "deep-r", examples.x.shape[1])
    twin = to_dense(model)
    x, y = examples.batches(BATCH)[0]
    losses = []
    for network in (model, twin):
        losses.append(F.cross_entropy(network(x), y))
        torch.autograd.backward(losses[-1])
    (wiring,) = wirings(model)
    assert wiring.theta.grad is not None
    for name, layer in sparse_layers(model):
        index = wiring.layer_index(layer.part)
        code, colptr = index.layer_packed_rows(), index.layer_colptr()
        columns = torch.repeat_interleave(torch.arange(colptr.numel() - 1), colptr[1:] - colptr[:-1])
        dense = twin.get_parameter(f"{name}.weight").grad
        assert dense is not None
        expected = dense[rows_of(code), columns] * signs_of(code, dense.dtype)
        if not torch.allclose(wiring.theta.grad[index.start : index.end], expected, rtol=1e-3, atol=1e-6):
            raise WrongAnswerError(f"step: gradients of layer {name} differ from the dense twin's")
    if not torch.allclose(losses[0], losses[1], rtol=1e-5, atol=1e-6):
        raise WrongAnswerError("step: the loss differs from the dense twin's")


def check_fused(hidden: Sequence[int], examples: Examples, steps: int = 16) -> None:
    """Fused steps lead where module steps lead: the same wiring, the same weights."""
    found = []
    order = torch.arange(steps * BATCH)
    for fused in (False, True):
        model, method = build(hidden, "deep-r", examples.x.shape[1])
        modules = ModuleEngine(model, method, examples.x, examples.y)
        engine = fused_engine(model, method, examples) if fused else modules
        if isinstance(engine, str):
            return
        list(engine.epoch(order, [LR] * steps, BATCH, steps))
        (wiring,) = wirings(model)
        wiring.check()
        found.append((wiring.packed_rows, wiring.theta.detach()))
    (code, theta), (code_fused, theta_fused) = found
    if not torch.equal(code, code_fused) or not torch.allclose(theta, theta_fused, rtol=1e-3, atol=1e-5):
        raise WrongAnswerError("step: the fused path differs from the module path")
