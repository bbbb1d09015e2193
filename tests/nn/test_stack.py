"""``SparseSequential``: the numbers of the layers one by one, and an ``nn.Sequential`` to everyone who looks."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.nn import SparseSequential
from wirebound.nn import stack as stack_module
from wirebound.nn.stack import StackRun
from wirebound.ops.native.stack import NativeStack

pytestmark = pytest.mark.skipif(not ops.native_available(), reason="the native kernels were not built")
ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity)


def _model(activation=nn.ReLU, bias=True, last=False, connectivity=0.1, scope="global"):
    torch.manual_seed(0)
    modules = [nn.Linear(37, 50, bias), activation(), nn.Linear(50, 20, bias), activation(), nn.Linear(20, 10, bias)]
    model = wb.sparsify(
        nn.Sequential(*modules, *([activation()] if last else [])), connectivity=connectivity, scope=scope
    )
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return model


def _input(batch=10):
    x = torch.randn(batch, 37, generator=torch.Generator().manual_seed(batch))
    x[:, 8:24] = 0  # as images are
    return x


def _calls(monkeypatch):
    """How often the stack is used."""
    calls = []
    original = NativeStack.forward
    monkeypatch.setattr(NativeStack, "forward", lambda self, x: calls.append(1) or original(self, x))
    return calls


def _gradients(model, run, x, dy):
    model.zero_grad()
    x = x.clone().requires_grad_(True)
    y = run(x)
    y.backward(dy)
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("batch", [0, 1, 2, 7, 8, 10, 16, 17, 24, 31, 32, 33, 70])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("connectivity", [0.03, 0.6])
def test_numbers_are_those_of_the_layers_one_by_one(monkeypatch, batch, activation, connectivity):
    for bias, last, scope in [(True, False, "global"), (False, True, "global"), (True, True, "layer")]:
        calls = _calls(monkeypatch)
        model = _model(activation, bias, last, connectivity, scope)
        x, dy = _input(batch), torch.randn(batch, 10)
        one = _gradients(model, model, x, dy)
        assert calls == [1]
        two = _gradients(model, lambda x: nn.Sequential.forward(model, x), x, dy)  # noqa: B023
        assert calls == [1]
        for a, b in zip(one, two, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        # Without a gradient to the input, those of its zero columns are passed over.
        model.zero_grad()
        model(x).backward(dy)
        for a, p in zip(one[2:], model.parameters(), strict=True):
            torch.testing.assert_close(p.grad, a, rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_the_dense_twin():
    model = _model(nn.Tanh)
    dense = wb.to_dense(model)
    assert type(dense) is nn.Sequential
    x, dy = _input(), torch.randn(10, 10)
    model(x).backward(dy)
    dense(x).backward(dy)
    (wiring,) = wb.wirings(model)
    for part, layer in enumerate((0, 2, 4)):
        index = wiring.layer_index(part)
        packed_rows, colptr = index.layer_packed_rows(), index.layer_colptr()
        columns = torch.repeat_interleave(torch.arange(len(colptr) - 1), colptr.diff())
        sign = 1 - 2 * (packed_rows < 0).float()
        expected = sign * dense[layer].weight.grad[(packed_rows & 0x7FFFFFFF).long(), columns]
        torch.testing.assert_close(wiring.theta.grad[index.start : index.end], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model[layer].bias.grad, dense[layer].bias.grad, rtol=1e-4, atol=1e-5)


def test_any_number_of_leading_dimensions_and_any_strides(monkeypatch):
    calls = _calls(monkeypatch)
    model = _model()
    x = torch.randn(3, 4, 37)
    one_by_one = nn.Sequential.forward(model, x)
    for given, expected in [
        (x, one_by_one),
        (x[0], one_by_one[0]),
        (x[0, 0], one_by_one[0, 0]),
        (x.transpose(0, 1), one_by_one.transpose(0, 1)),
        (torch.randn(37, 5).t().copy_(x[0, 0].expand(5, 37)), one_by_one[0, 0].expand(5, 10)),
    ]:
        torch.testing.assert_close(model(given), expected, rtol=1e-4, atol=1e-5)
    assert len(calls) == 5
    # A gradient of a sum is one number, expanded.
    model(x[0]).sum().backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    nn.Sequential.forward(model, x[0]).sum().backward()
    for a, p in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-5)


def test_frozen_parameters_get_no_gradient_and_the_others_theirs():
    model = _model()
    x, dy = _input(), torch.randn(10, 10)
    expected = _gradients(model, model, x, dy)[2:]
    model.zero_grad()
    for frozen in ("2.bias", "0.wiring.theta"):
        dict(model.named_parameters())[frozen].requires_grad_(False)
    model(x).backward(dy)
    for (name, p), right in zip(model.named_parameters(), expected, strict=True):
        if name in ("2.bias", "0.wiring.theta"):
            assert p.grad is None
        else:
            torch.testing.assert_close(p.grad, right)


def test_a_wiring_may_reach_beyond_the_run():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 15), nn.LayerNorm(15), nn.Linear(15, 4))
    model = wb.sparsify(model, connectivity=0.2)
    model(torch.zeros(1, 20))
    assert [isinstance(piece, StackRun) for piece in model._plan[1]] == [True, False, False]
    x, dy = torch.randn(6, 20), torch.randn(6, 4)
    one = _gradients(model, model, x, dy)
    two = _gradients(model, lambda x: nn.Sequential.forward(model, x), x, dy)
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_layer_may_occur_twice():
    torch.manual_seed(0)
    layer = nn.Linear(12, 12)
    model = wb.sparsify(nn.Sequential(layer, nn.Tanh(), layer, nn.ReLU(), nn.Linear(12, 3)), connectivity=0.3)
    x, dy = torch.randn(5, 12), torch.randn(5, 3)
    one = _gradients(model, model, x, dy)
    two = _gradients(model, lambda x: nn.Sequential.forward(model, x), x, dy)
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
@pytest.mark.parametrize("place", [0, 1, 4])
def test_hooks_are_called(kind, place):
    model = _model()
    x = _input()
    model(x)
    seen = []
    handle = getattr(model[place], f"register_{kind}_hook")(lambda *args: seen.append(1) and None)
    model(x).sum().backward()
    assert seen == [1]
    handle.remove()
    model(x).sum().backward()
    assert seen == [1]


def test_a_replaced_forward_and_global_hooks_are_called():
    model = _model()
    x = _input()
    model(x)
    model[1].forward = lambda x: x * 0
    assert torch.equal(model(x), nn.Sequential.forward(model, x))
    del model[1].forward
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module) and None)
    model(x)
    handle.remove()
    assert [module for module in seen if module is not model] == list(model)


def test_replaced_modules_and_parameters_are_noticed():
    model = _model()
    x = _input()
    model(x)
    model[1] = nn.Tanh()
    torch.testing.assert_close(model(x), nn.Sequential.forward(model, x), rtol=1e-4, atol=1e-5)
    model[2].bias = nn.Parameter(torch.ones(20))
    torch.testing.assert_close(model(x), nn.Sequential.forward(model, x), rtol=1e-4, atol=1e-5)
    model[2].bias = None
    torch.testing.assert_close(model(x), nn.Sequential.forward(model, x), rtol=1e-4, atol=1e-5)
    double = model.double()(x.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(model.float()(x), double.float(), rtol=1e-4, atol=1e-5)


def test_memory_that_moves_between_the_passes_stays_alive():
    model = _model()
    x, dy = _input(), torch.randn(10, 10)
    expected = _gradients(model, model, x, dy)[2:]
    model.zero_grad()
    y = model(x)
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()  # as .to() does it
    y.backward(dy)
    for p, right in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, right)


def test_a_change_between_the_passes_is_an_error():
    model = _model()
    x = _input()
    for change in (
        lambda: model[0].wiring.theta.mul_(2),
        lambda: model.load_state_dict(copy.deepcopy(model.state_dict())),
        lambda: x.add_(1),
    ):
        loss = model(x).sum()
        with torch.no_grad():
            change()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_step_between_the_passes_is_an_error():
    model = _model()
    rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1))
    first, second = model(_input()).sum(), model(_input()).sum()
    first.backward()
    rewiring.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        second.backward()


def test_the_graph_can_be_used_again_if_it_is_kept_and_has_no_second_derivative():
    model = _model()
    loss = model(_input()).sum()
    loss.backward(retain_graph=True)
    once = model[0].wiring.theta.grad.clone()
    loss.backward()
    torch.testing.assert_close(model[0].wiring.theta.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(model(_input()).sum(), model[0].wiring.theta, create_graph=True)


def test_it_is_an_ordinary_sequential(monkeypatch):
    model = _model()
    assert type(model) is SparseSequential
    assert isinstance(model, nn.Sequential)
    x = _input()
    expected = model(x)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(buffer, weights_only=False)]
    calls = _calls(monkeypatch)
    for other in copies:
        assert torch.equal(other(x), expected)
        with torch.no_grad():
            other[0].wiring.theta.zero_()
            assert not torch.equal(other(x), expected)
    assert len(calls) == 6
    assert torch.equal(model(x), expected)
    assert list(model.state_dict()) == list(_model().state_dict())
    half = model[:3]
    torch.testing.assert_close(model[3:](half(x)), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(model[0](x), half[0](x))


def test_rewiring_moves_layers_and_the_stack_follows():
    model = _model(connectivity=0.2)
    rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=0.05, temperature=1e-3)
    x, y = _input(), torch.arange(10)
    rewired = 0
    for _ in range(30):
        torch.testing.assert_close(model(x), nn.Sequential.forward(model, x), rtol=1e-4, atol=1e-5)
        nn.functional.cross_entropy(model(x), y).backward()
        rewired += rewiring.step().rewired
        rewiring.zero_grad()
        wb.wirings(model)[0].check()
    assert rewired > 100


@pytest.mark.parametrize(
    ("modules", "runs"),
    [
        ([nn.Linear(8, 8), nn.ReLU()], 0),
        ([nn.Flatten(), nn.Linear(8, 8), nn.Linear(8, 8), nn.Softmax(1)], 1),
        ([nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 8)], 0),
        ([nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 8)], 1),
        ([nn.Linear(8, 8), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)], 2),
        ([nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3, bias=False), nn.Identity()], 1),
    ],
)
def test_which_modules_form_a_run(modules, runs):
    model = wb.sparsify(nn.Sequential(*modules), connectivity=0.5).eval()
    assert type(model) is (SparseSequential if runs else nn.Sequential)
    x = torch.randn(4, 8)
    torch.testing.assert_close(model(x), nn.Sequential.forward(model, x), rtol=1e-4, atol=1e-5)
    if runs:
        assert sum(isinstance(piece, StackRun) for piece in model._plan[1]) == runs


def test_subclasses_and_dense_parts_are_left_alone():
    class Mine(nn.Sequential):
        pass

    inner = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model = wb.sparsify(Mine(nn.Linear(8, 8), nn.Linear(8, 8), inner, nn.Sequential(nn.Linear(8, 2))), connectivity=0.5)
    assert type(model) is Mine
    assert type(inner) is SparseSequential
    assert type(model[3]) is nn.Sequential
    assert type(wb.to_dense(model)[2]) is nn.Sequential


def test_large_work_and_the_reference_go_layer_by_layer(monkeypatch, threads):
    calls = _calls(monkeypatch)
    model = _model()
    x = _input()
    with ops.use("reference"):
        expected = model(x)
    assert not calls
    most = stack_module._MOST_WORK
    for count in (1, 2):  # the choice must not depend on it: the two sum in different orders
        torch.set_num_threads(count)
        monkeypatch.setattr(stack_module, "_MOST_WORK", 1)
        model(x)
        assert not calls
    monkeypatch.setattr(stack_module, "_MOST_WORK", most)
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    assert len(calls) == 2


def test_wrong_inputs_get_the_errors_of_the_layers():
    model = _model()
    with pytest.raises(ValueError, match="must be in_features"):
        model(torch.randn(3, 36))
    with pytest.raises(ValueError, match="dtype of the input"):
        model(torch.randn(3, 37, dtype=torch.float64))
