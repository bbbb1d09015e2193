"""Attention and transformers with sparse projections: numerically the dense modules with the same weights."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound.nn.attention import SparseMultiheadAttention

WIDTH, HEADS = 12, 3


def same(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"batch_first": True},
        {"kdim": 7, "vdim": 5, "batch_first": True},
        {"add_bias_kv": True},
        {"add_zero_attn": True, "batch_first": True},
        {"add_bias_kv": True, "add_zero_attn": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_equals_torch_in_outputs_and_gradients(options: dict[str, Any], scope: str) -> None:
    torch.manual_seed(0)
    dense = nn.MultiheadAttention(WIDTH, HEADS, dtype=torch.float64, **options)
    sparse = wb.sparsify(copy.deepcopy(dense), 0.5, scope=scope)
    assert isinstance(sparse, SparseMultiheadAttention)
    twin = wb.to_dense(sparse)
    assert type(twin) is nn.MultiheadAttention
    if dense.in_proj_bias is not None:
        same(twin.in_proj_bias, dense.in_proj_bias)
        same(twin.out_proj.bias, dense.out_proj.bias)
    batch, queries, keys = 2, 4, 5
    shapes = [(queries, batch, WIDTH), (keys, batch, dense.kdim), (keys, batch, dense.vdim)]
    if dense.batch_first:
        shapes = [(b, n, w) for n, b, w in shapes]
    inputs = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    causal = torch.triu(torch.ones(queries, keys, dtype=torch.bool), 1)
    for call in (
        {},
        {"need_weights": False},
        {"key_padding_mask": padding},
        {"attn_mask": causal, "average_attn_weights": False},
        {"attn_mask": torch.randn(batch * HEADS, queries, keys, dtype=torch.float64), "need_weights": False},
        {"attn_mask": causal, "key_padding_mask": padding, "need_weights": False, "is_causal": True},
    ):
        gradients = []
        for module in (sparse, twin):
            y, weights = module(*inputs, **call)
            gradients.append(torch.autograd.grad(y.square().sum(), inputs))
            if module is sparse:
                expected = (y, weights)
        same(expected, (y, weights))
        same(gradients[0], gradients[1])


def test_gradients_of_the_connections_are_those_of_the_dense_weights() -> None:
    torch.manual_seed(1)
    sparse = wb.sparsify(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64), 0.3)
    twin = wb.to_dense(sparse)
    x = torch.randn(2, 4, WIDTH, dtype=torch.float64)
    for module in (sparse, twin):
        module(x, x, x, need_weights=False)[0].square().sum().backward()
    (wiring,) = wb.wirings(sparse)
    got = wiring.theta.grad
    dense = [*twin.in_proj_weight.grad.chunk(3), twin.out_proj.weight.grad]
    flat = torch.cat([g.t().reshape(-1) for g in dense])[wiring.positions()]
    same(got * torch.where(wiring.packed_rows < 0, -1.0, 1.0), flat)


def test_unbatched_and_self_attention_on_both_implementations(implementation: str) -> None:
    sparse = wb.sparsify(nn.MultiheadAttention(WIDTH, HEADS), 0.4)
    twin = wb.to_dense(sparse)
    x = torch.randn(6, WIDTH)
    y, weights = sparse(x, x, x)
    expected = twin(x, x, x)
    torch.testing.assert_close(y, expected[0])
    torch.testing.assert_close(weights, expected[1])


def test_wrong_masks_say_what_is_wrong() -> None:
    sparse = wb.sparsify(nn.MultiheadAttention(WIDTH, HEADS), 0.4)
    x = torch.randn(6, 2, WIDTH)
    with pytest.raises(ValueError, match=r"shape of attn_mask \(=\(2, 2\)\) must be \(6, 6\) or \(6, 6, 6\)"):
        sparse(x, x, x, attn_mask=torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"shape of key_padding_mask \(=\(6, 2\)\) must be \(2, 6\)"):
        sparse(x, x, x, key_padding_mask=torch.zeros(6, 2))
    with pytest.raises(ValueError, match="dtype of attn_mask"):
        sparse(x, x, x, attn_mask=torch.zeros(6, 6, dtype=torch.int64))
    with pytest.raises(ValueError, match="is_causal"):
        sparse(x, x, x, is_causal=True)


def encoder(layers: int = 2, **options: Any) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS + 1, 20, dropout=0.0, batch_first=True, **options)
    return nn.TransformerEncoder(layer, layers)


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("exclude", [(), nn.MultiheadAttention, "*.linear1"], ids=["all", "attention", "linear1"])
def test_transformer_encoder_equals_its_twin(options: dict[str, Any], mode: str, exclude: Any) -> None:
    """In eval mode torch takes a fused path that reads dense weights: it must be left."""
    torch.manual_seed(2)
    model = getattr(wb.sparsify(encoder(**options), 0.3, exclude=exclude), mode)()
    twin = wb.to_dense(model)
    assert twin.layers[0].activation_relu_or_gelu in (1, 2)
    x = torch.randn(3, 5, WIDTH)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    for call in ({}, {"src_key_padding_mask": padding}):
        with torch.no_grad():
            got, expected = model(x, **call), twin(x, **call)
        keep = ~padding if call else torch.ones_like(padding)
        torch.testing.assert_close(got[keep], expected[keep], rtol=1e-4, atol=1e-5)


def test_decoder_and_whole_transformer() -> None:
    torch.manual_seed(3)
    model = wb.sparsify(nn.Transformer(WIDTH, 4, 1, 1, 20, dropout=0.0, batch_first=True), 0.4).eval()
    twin = wb.to_dense(model)
    source, target = torch.randn(2, 5, WIDTH), torch.randn(2, 3, WIDTH)
    torch.testing.assert_close(model(source, target), twin(source, target), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_trains_within_the_budget(optimizer: Any, implementation: str) -> None:
    torch.manual_seed(4)
    model = wb.sparsify(encoder(1), 0.2)
    method = wb.DeepR(model, optimizer(model.parameters(), lr=0.02), l1=1e-3)
    x, y = torch.randn(8, 5, WIDTH), torch.randn(8, 5, WIDTH)
    losses = []
    for _ in range(30):
        loss = (model(x) - y).square().mean()
        loss.backward()
        info = method.step()
        method.zero_grad()
        assert info.active == info.budget == sum(w.active for w in wb.wirings(model))
        losses.append(float(loss.detach()))
    for wiring in wb.wirings(model):
        wiring.check()
    assert losses[-1] < losses[0]


def test_copies_files_and_meta() -> None:
    with torch.device("meta"):
        model = encoder()
    model = wb.sparsify(model, 0.2)
    assert not any(p.is_meta for p in model.parameters())
    x = torch.randn(2, 3, WIDTH)
    y = model(x)
    same(copy.deepcopy(model)(x), y)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    same(torch.load(file, weights_only=False)(x), y)
    other = wb.sparsify(encoder(), 0.2, seed=5)
    other.load_state_dict(model.state_dict())
    same(other(x), y)
