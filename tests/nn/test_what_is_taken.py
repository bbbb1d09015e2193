"""Which modules ``sparsify`` takes, which it leaves alone, and what it says about both."""

from __future__ import annotations

import logging
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

import wirebound as wb


class Named(nn.Linear):
    """Computes as nn.Linear does."""

    def extra_repr(self) -> str:
        return "mine"


class Stepped:
    """A mixin as spiking libraries have it: a mode, and no forward of its own."""

    step_mode = "s"


class StepLinear(nn.Linear, Stepped):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.step_mode = "m"


class PlainLSTM(nn.LSTM):
    pass


class PlainConv(nn.Conv2d):
    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        assert self.bias is not None
        nn.init.zeros_(self.bias)  # nn.Conv2d leaves it as it found the memory


@pytest.mark.parametrize(
    ("dense", "twin", "shape"),
    [
        (lambda: Named(6, 5), wb.SparseLinear, (2, 6)),
        (lambda: StepLinear(6, 5), wb.SparseLinear, (2, 6)),
        (lambda: PlainLSTM(6, 5), wb.SparseLSTM, (3, 2, 6)),
        (lambda: PlainConv(3, 4, 2, padding=1), wb.SparseConv2d, (2, 3, 4, 4)),
    ],
)
def test_subclasses_that_compute_as_their_base_are_taken(
    dense: Callable[[], nn.Module], twin: type[nn.Module], shape: tuple[int, ...]
) -> None:
    model = wb.sparsify(nn.ModuleList([dense()]), 0.5)[0]
    assert type(model) is twin
    x = torch.randn(shape)
    torch.testing.assert_close(model(x), wb.to_dense(model)(x))


class Doubling(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Standardised(nn.Conv2d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input, weight - weight.mean(), bias)


class Scaled(nn.Linear):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.weight_scale = nn.Parameter(torch.ones(1))


class Counted(nn.Linear):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.register_buffer("calls", torch.zeros(1))


def patched() -> nn.Linear:
    layer = nn.Linear(6, 5)
    layer.forward = types.MethodType(lambda self, x: torch.zeros(len(x), 5), layer)
    return layer


@pytest.mark.parametrize(
    ("dense", "says"),
    [
        (lambda: Doubling(6, 5), "'odd' (Doubling, which overrides forward()) 30"),
        (lambda: Standardised(3, 4, 2), "'odd' (Standardised, which overrides _conv_forward()) 48"),
        (lambda: Scaled(6, 5), "'odd' (Scaled, which has 'weight_scale' of its own) 30"),
        (lambda: Counted(6, 5), "'odd' (Counted, which has 'calls' of its own) 30"),
        (patched, "'odd' (Linear, which has a forward() of its own) 30"),
    ],
)
def test_modules_with_ways_of_their_own_stay_dense_and_are_named(dense: Callable[[], nn.Module], says: str) -> None:
    odd = dense()
    model = wb.sparsify(nn.ModuleDict({"odd": odd, "plain": nn.Linear(9, 9)}), 0.5)
    assert model["odd"] is odd
    assert says in model.sparsified
    with pytest.raises(ValueError, match=r"'odd' (has|overrides) .*include="):
        wb.sparsify(nn.ModuleDict({"odd": dense()}), 0.5)
    masked = wb.sparsify(nn.ModuleDict({"odd": dense()}), 0.5, include="odd")["odd"]
    assert isinstance(masked, type(odd))
    assert int((masked.weight != 0).sum()) == round(0.5 * odd.weight.numel())


def test_an_attention_that_stays_dense_keeps_its_projection() -> None:
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2), "head": nn.Linear(8, 3)})
    wb.sparsify(model, 0.5, exclude=nn.MultiheadAttention)
    x = torch.randn(4, 2, 8)
    assert isinstance(model["attention"].out_proj, nn.Linear)
    assert model["head"](model["attention"](x, x, x)[0]).shape == (4, 2, 3)


def pruned() -> nn.Module:
    layer = nn.Linear(4, 3)
    prune.l1_unstructured(layer, "weight", 0.5)
    return layer


def normed() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nn.utils.weight_norm(nn.Linear(4, 3))


SENTENCES = [
    (lambda: nn.LazyLinear(3), r"'a' \(=LazyLinear\) .* not there before one batch"),
    (lambda: nn.LazyConvTranspose2d(3, 2), r"'a' \(=LazyConvTranspose2d\) .* run one first, or exclude the module"),
    (pruned, r"'a' \(=Linear\) .*'weight' is under torch.nn.utils.prune: call prune.remove\(module, 'weight'\) first"),
    (normed, r"'a' \(=Linear\) .* call torch.nn.utils.remove_weight_norm\(module, 'weight'\) first"),
    (lambda: torch.nn.utils.spectral_norm(nn.Linear(4, 3)), r"remove_spectral_norm\(module, 'weight'\)"),
    (lambda: parametrizations.weight_norm(nn.Linear(4, 3)), r"remove_parametrizations\(module, 'weight'\) first"),
    (lambda: nn.LSTM(4, 6, proj_size=3), r"'a' \(=LSTM\) .* proj_size \(=3\) must be 0"),
    (lambda: nn.Linear(4, 3, dtype=torch.complex64), r"'weight' of module 'a' \(=Linear\) is torch.complex64, but .* one of float64"),
]


@pytest.mark.parametrize(("dense", "says"), SENTENCES, ids=range(len(SENTENCES)))
def test_what_cannot_be_taken_yet_is_refused_with_the_way_out(dense: Callable[[], nn.Module], says: str) -> None:
    model = nn.ModuleDict({"a": dense(), "b": nn.Linear(3, 2)})
    with pytest.raises(ValueError, match=says):
        wb.sparsify(model, 0.5)
    assert type(model["b"]) is nn.Linear
    wb.sparsify(model, 0.5, exclude="a")
    assert type(model["b"]) is wb.SparseLinear


def test_the_ways_out_lead_out() -> None:
    lazy = nn.ModuleDict({"a": nn.LazyLinear(3)})
    lazy["a"](torch.ones(2, 4))
    masked, weighted = nn.ModuleDict({"a": pruned()}), nn.ModuleDict({"a": parametrizations.weight_norm(nn.Linear(4, 3))})
    prune.remove(masked["a"], "weight")
    parametrize.remove_parametrizations(weighted["a"], "weight")
    for model in (lazy, masked, weighted):
        x, before = torch.randn(2, 4), model["a"]
        y = before(x)
        wb.sparsify(model, 1.0, keep="largest")
        torch.testing.assert_close(model["a"](x), y)


class Experts(nn.Module):
    """A mixture of experts as Hugging Face keeps them: all in one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.Parameter(torch.randn(4, 6, 8) / 8**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("be,eoi,bi->bo", self.gate(x).softmax(-1), self.experts, x)


def test_experts_are_masked_and_that_is_said() -> None:
    torch.manual_seed(0)
    model = wb.sparsify(Experts(), 0.25, include=["experts", nn.Linear])
    (wiring,) = wb.wirings(model)
    sizes = {(s.name, s.n_out, s.n_in) for s in wiring.layers}
    assert sizes == {("experts", 24, 8), ("gate", 4, 8)}
    assert "masked, dense in every pass: 'experts'" in model.sparsified
    assert "dense weights in a pass" in str(wb.ledger(model))
    x, target = torch.randn(16, 8), torch.randn(16, 6)
    rewiring = wb.RigL(model, torch.optim.Adam(model.parameters(), lr=0.02), every=2)
    losses = []
    for _ in range(8):
        loss = (model(x) - target).square().mean()
        loss.backward()
        info = rewiring.step()
        rewiring.zero_grad()
        losses.append(loss.item())
        assert info.active == info.budget
    assert losses[-1] < losses[0]
    torch.testing.assert_close(wb.to_dense(model)(x), model(x))
    assert wb.to_dense(model).experts.shape == (4, 6, 8)


class Words(nn.Module):
    def __init__(self, words: int = 50) -> None:
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(words, 8), Doubling(8, 8), nn.Linear(8, 4)


def test_one_line_says_what_became_sparse(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "wirebound"), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = wb.sparsify(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2), nn.LayerNorm(2)), 0.5)
    (record,) = caplog.records
    assert record.getMessage() == "sparsify: 80 of 80 weights (2 matrices) became sparse, with 40 connections"
    assert model.sparsified == record.getMessage().removeprefix("sparsify: ")
    assert not hasattr(wb.to_dense(model), "sparsified")


def test_a_warning_where_most_stayed_dense() -> None:
    with pytest.warns(UserWarning, match="94% of the weights stayed dense") as caught:
        wb.sparsify(Words(), 0.5)
    assert caught[0].filename == __file__
    assert str(caught[0].message) == (
        "94% of the weights stayed dense: 32 of 496 weights (1 matrix) became sparse, with 16 connections; dense embeddings: "
        "'embedding' (Embedding) 400; dense: 'body' (Doubling, which overrides forward()) 64. Name modules in include= to "
        "have them masked too, or in exclude= if they are to stay dense"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"exclude": [nn.Embedding, "body"]},
        {"exclude": ["embedding", lambda name, module: name == "body"]},
        {"include": "head"},
        {"include": ["head", "embedding", "body"]},
    ],
    ids=["excluded by type and name", "by function", "included alone", "all included"],
)
def test_no_warning_for_what_was_asked_for(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = wb.sparsify(Words(), 0.5, **options)
    by_choice = 0 if isinstance(options.get("include"), list) else 464
    assert ("dense by choice: 464" in model.sparsified) == bool(by_choice)


def test_a_model_that_is_sparse_already() -> None:
    model = wb.sparsify(nn.Sequential(nn.ReLU(), nn.LSTM(4, 4)), 0.5)
    with pytest.raises(ValueError, match=r"is already sparse \('1' is a SparseLSTM\)"):
        wb.sparsify(model, 0.5)
    with pytest.raises(ValueError, match=r"nothing to sparsify: none of nn.Linear.* include="):
        wb.sparsify(nn.Sequential(nn.Embedding(4, 4)), 0.5)


def test_the_rest_of_a_model_later_draws_other_numbers() -> None:
    model = nn.Sequential(nn.Linear(30, 30), nn.Linear(30, 30))
    wb.sparsify(model, 0.2, include="0")
    wb.sparsify(model, 0.2)
    first, second = wb.wirings(model)
    assert not torch.equal(first.positions(), second.positions())
    assert not torch.equal(first.theta, second.theta)


def test_weights_that_were_not_trained() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.MultiheadAttention(4, 2))
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wb.sparsify(model, 0.5, scope="layer")
    assert "not trained, as before: '0', '2.q_proj', '2.k_proj' and 2 more" in model.sparsified
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {"1.bias", "1.wiring.theta"}
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    with pytest.warns(UserWarning, match=r"the weights of '0' had requires_grad=False, but share a budget"):
        wb.sparsify(model, 0.5)
    assert [p.requires_grad for p in (model[0].bias, model[1].bias, wb.wirings(model)[0].theta)] == [False, True, True]


def test_who_listens_in_still_does() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    heard: list[torch.Size] = []
    handle = model[0].register_forward_hook(lambda module, inputs, output: heard.append(output.shape))
    model[2].register_full_backward_hook(lambda module, before, after: heard.append(after[0].shape))
    wb.sparsify(model, 0.5)
    model(torch.randn(3, 4)).sum().backward()
    assert heard == [(3, 4), (3, 2)]
    handle.remove()
    heard.clear()
    model(torch.randn(3, 4)).sum().backward()
    assert heard == [(3, 2)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_by_the_reference(dtype: torch.dtype) -> None:
    kinds = [
        (nn.Linear(4, 3), (2, 4)),
        (nn.Conv3d(2, 3, 2), (1, 2, 3, 3, 3)),
        (nn.ConvTranspose1d(2, 3, 2, 2), (1, 2, 3)),
        (nn.RNN(4, 3), (2, 1, 4)),
        (nn.GRUCell(4, 3), (2, 4)),
    ]
    model = wb.sparsify(nn.ModuleList(layer for layer, _ in kinds).to(dtype), 0.5)
    for layer, (_, shape) in zip(model, kinds, strict=True):
        y = layer(torch.randn(shape).to(dtype))
        y = y[0] if isinstance(y, tuple) else y
        assert y.dtype is dtype
        y.sum().backward()
    assert wb.wirings(model)[0].theta.grad.dtype is dtype


def test_eval_mode_and_shared_cells() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.GRUCell(4, 4)
            self.again = self.first

    model = wb.sparsify(Twice().eval(), 0.5)
    assert model.first is model.again
    assert not model.first.training
    assert not wb.to_dense(model).first.training


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 2)


@pytest.mark.parametrize("which", ["encoder", "encoder.*", nn.Sequential, ["encoder.0", "encoder.2.weight"]], ids=str)
def test_a_name_or_a_type_stands_for_all_that_is_in_it(which: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        without = wb.sparsify(Deep(), 0.5, exclude=which)
        only = wb.sparsify(Deep(), 0.5, include=which)
    assert [layer.name for layer in wb.wirings(without)[0].layers] == ["head"]
    assert "dense by choice: 32" in without.sparsified
    assert [layer.name for layer in wb.wirings(only)[0].layers] == ["encoder.0", "encoder.2"]


@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_a_name_that_nothing_has_is_noticed(argument: str) -> None:
    with pytest.warns(UserWarning, match=f"{argument} names 'haed', but no module or parameter") as caught:
        wb.sparsify(Deep(), 0.5, **{argument: ["haed", "encoder.0"]})
    assert caught[0].filename == __file__
