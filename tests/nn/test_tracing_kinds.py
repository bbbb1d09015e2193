"""Every kind of layer can be recorded by torch's tracers, and computes the same there."""

from __future__ import annotations

import warnings

import pytest
import torch
from test_kinds_are_kept import MAKERS, Holder
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import wirebound as wb

every_kind = pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)


@every_kind
@pytest.mark.filterwarnings("error::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_trace_computes_the_same(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = wb.sparsify(Holder(kind), 0.4).eval()
    x, other = torch.randn(2, *MAKERS[kind][1])
    expected = model(other)
    with torch.no_grad():
        traced = torch.jit.trace(model, x)
    torch.testing.assert_close(traced(other), expected)
    torch.testing.assert_close(make_fx(model)(x)(other), expected)


@every_kind
def test_it_is_one_node_for_fx(kind: type[nn.Module]) -> None:
    layer = wb.sparsify(MAKERS[kind][0](), 0.4).eval()
    if kind is nn.MultiheadAttention:
        pytest.skip("it takes three inputs")
    x = torch.randn(MAKERS[kind][1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch.fx.symbolic_trace(nn.Sequential(layer))
    assert [node.op for node in graph.graph.nodes] == ["placeholder", "call_module", "output"]
    torch.testing.assert_close(graph(x), layer(x))
