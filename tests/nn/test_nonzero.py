"""Plain layers computed by their nonzero weights: torch's answers, and its gradients wherever a weight is not 0."""

import copy

import pytest
import torch
from torch import nn

from wirebound import ops
from wirebound.methods import METHODS
from wirebound.nn import nonzero
from wirebound.nn.nonzero import FEWEST_EXAMPLES, MOST, FastConv2d, NonzeroConv2d, NonzeroLinear, are_few
from wirebound_lab.tasks.phonemes import dense_model

LAYERS = {
    "linear": (lambda: NonzeroLinear(30, 20), (FEWEST_EXAMPLES, 30)),
    "linear of frames": (lambda: NonzeroLinear(30, 20), (3, FEWEST_EXAMPLES, 30)),
    "convolution": (lambda: NonzeroConv2d(6, 8, 3, stride=2, padding=1, groups=2), (4, 6, 9, 9)),
}


def _thinned(module: nn.Module, share: float) -> nn.Module:
    """Only a share of the weights is not 0."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.mul_(torch.rand(parameter.shape, generator=generator) < share)
    return module.double()


def _assert_same(ours: nn.Module, plain: nn.Module, *inputs: torch.Tensor) -> None:
    answers = [model(*inputs) for model in (ours, plain)]
    torch.testing.assert_close(*answers)
    for answer in answers:
        answer.square().sum().backward()
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        seen = mine.detach() != 0 if mine.dim() > 1 else torch.ones_like(mine, dtype=torch.bool)
        torch.testing.assert_close(mine.grad, theirs.grad * seen)


@pytest.mark.parametrize("name", LAYERS)
def test_answers_and_gradients_are_torchs(name: str) -> None:
    make, shape = LAYERS[name]
    ours = _thinned(make(), 0.1)
    plain = copy.deepcopy(ours)
    plain.__class__ = nn.Linear if isinstance(ours, nn.Linear) else nn.Conv2d
    x = torch.randn(shape, dtype=torch.float64)
    assert are_few(ours.weight)
    _assert_same(ours, plain, x)


def test_a_full_layer_is_torchs_own() -> None:
    layer = NonzeroLinear(12, 9)
    x = torch.randn(FEWEST_EXAMPLES, 12)
    assert not are_few(layer.weight)
    assert torch.equal(layer(x), nn.Linear.forward(layer, x))
    with torch.no_grad():
        layer.weight.view(-1)[: round((1 - MOST) * layer.weight.numel()) + 1] = 0
    assert are_few(layer.weight)


def test_few_examples_are_not_worth_the_search() -> None:
    layer = _thinned(NonzeroLinear(12, 9), 0.1)
    x = torch.randn(FEWEST_EXAMPLES - 1, 12, dtype=torch.float64)
    layer(x).sum().backward()
    assert are_few(layer.weight)
    assert layer.weight.grad.count_nonzero() == layer.weight.numel()  # torch's own: also of those that are 0


@pytest.mark.parametrize("kind", [FastConv2d, NonzeroConv2d])
@pytest.mark.parametrize("kernel", [3, 5])
def test_a_full_convolution_has_torchs_answers(kind: type[FastConv2d], kernel: int) -> None:
    ours = kind(16, 20, kernel, padding=kernel // 2).double()
    plain = copy.deepcopy(ours)
    plain.__class__ = nn.Conv2d
    x = torch.randn(3, 16, 12, 12, dtype=torch.float64)
    assert ours.all_at_once(x, ours.weight.numel()) == ops.native_available()
    _assert_same(ours, plain, x)
    with ops.use("reference"):
        assert torch.equal(ours(x), plain(x))  # torch's own


@pytest.mark.parametrize("how", [{"stride": 2}, {"padding": "same"}, {"padding": 1, "padding_mode": "circular"}])
def test_other_convolutions_are_torchs_own(how: dict) -> None:
    layer, x = FastConv2d(16, 16, 3, **how), torch.randn(2, 16, 12, 12)
    assert torch.equal(layer(x), nn.Conv2d.forward(layer, x))


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("zeros_learn", [True, False])
def test_two_way_lstm_of_different_lengths(zeros_learn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonzero, "FEWEST_EXAMPLES", 1)
    ours, plain = (_thinned(dense_model(5, 8, 4, 3, learn), 0.2) for learn in (zeros_learn, True))
    x, lengths = torch.randn(4, 6, 5, dtype=torch.float64), torch.tensor([6, 2, 5, 3])
    labelled = torch.arange(6) < lengths[:, None]  # what stands beyond a sequence's end is without meaning
    assert all(nonzero.lstm_is_sparse(lstm, zeros_learn) for lstm in (ours.lstm.ahead, ours.lstm.back))
    answer = ours(x, lengths)[labelled]
    answer.square().sum().backward()
    with torch.no_grad():
        torch.testing.assert_close(ours(x, lengths)[labelled], answer)
    for name in ("MOST", "MOST_WHOLE"):  # torch's own LSTM
        monkeypatch.setattr(nonzero, name, 0.0)
    expected = plain(x, lengths)[labelled]
    expected.square().sum().backward()
    torch.testing.assert_close(answer, expected)
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        seen = torch.ones_like(mine, dtype=torch.bool) if zeros_learn or mine.dim() == 1 else mine.detach() != 0
        torch.testing.assert_close(mine.grad, theirs.grad * seen)


def test_only_methods_that_leave_zeros_alone_are_computed_so() -> None:
    assert {name for name, method in METHODS.items() if not method.zeros_learn} == {"pruning", "soft-deep-r"}
