"""Which optimisers train connections that move: their state moves along, or they are refused by name."""

import inspect
import warnings
from collections import defaultdict

import pytest
import torch
import torch.nn.functional as F
from optimizer_questions import X, Y, ask, backward, model, run
from torch import nn, optim

import wirebound as wb

# Optimiser of torch: tensors by element that it keeps of θ; or the sentence that refuses it.
TORCH = {
    "ASGD": 1,
    "Adadelta": 2,
    "Adafactor": 1,
    "Adagrad": 1,
    "Adam": 2,
    "AdamW": 2,
    "Adamax": 2,
    "NAdam": 2,
    "RAdam": 2,
    "RMSprop": 1,
    "Rprop": 2,
    "SGD": 0,
    "LBFGS": "evaluates a closure several times in a step",
    "Muon": "only supports 2D parameters",  # torch's own words
    "SparseAdam": "takes sparse gradients",
}
OPTIONS = {
    "SGD momentum": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "SGD maximize": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, maximize=True),
    "Adam amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "Adam fused": lambda p: optim.Adam(p, lr=0.01, fused=True),
    "AdamW maximize": lambda p: optim.AdamW(p, lr=0.01, maximize=True),
    "Adam tensor lr": lambda p: optim.Adam(p, lr=torch.tensor(0.01), foreach=False),
    "RMSprop centered": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "Adagrad accumulator": lambda p: optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.5),
}


def _torch_classes():
    return {
        name: kind
        for name, kind in vars(optim).items()
        if inspect.isclass(kind) and issubclass(kind, optim.Optimizer) and kind is not optim.Optimizer
    }


def test_the_table_knows_all_of_torch():
    assert set(_torch_classes()) <= set(TORCH)


@pytest.mark.parametrize("name", TORCH)
def test_optimisers_of_torch(name):
    kind = _torch_classes().get(name)
    if kind is None:
        pytest.skip(f"this torch has no {name}")
    if isinstance(TORCH[name], str):
        with pytest.raises(ValueError, match=TORCH[name]):
            run(wb.DeepR, lambda p: kind(p, lr=0.01), 1)
    else:
        assert ask(lambda p: kind(p, lr=0.01)) == TORCH[name]


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_torch(name):
    assert ask(OPTIONS[name], deep_r="maximize" not in name) >= 1


def test_newborns_start_as_parameters_do():
    for optimizer, name, start in (
        (lambda p: optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.5), "sum", 0.5),
        (lambda p: optim.Rprop(p, lr=0.03), "step_size", 0.03),
        (lambda p: Counting(p, lr=0.01), "product", 0.9),
    ):
        method, info = run(wb.SET, optimizer, 4, every=4, zeta=0.4)
        theta = wb.wirings(method.model)[0].theta
        values = method.optimizer.state[theta][name][theta == 0]
        assert len(values) >= info.rewired > 10
        assert torch.allclose(values, torch.tensor(start))


class Counting(optim.Optimizer):
    """Keeps a product that starts at 1, and divides by its distance from 1."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    if not state:
                        state.update(product=torch.ones_like(p), mean=torch.zeros_like(p))
                    state["product"] *= 0.9
                    state["mean"].mul_(0.9).add_(p.grad, alpha=0.1)
                    p.sub_(group["lr"] * state["mean"] / (1 - state["product"]))


class Nested(Counting):
    """State in containers, some of it later than the first step, in an attribute, and under a name of its own."""

    def __init__(self, params, lr):
        super().__init__(params, lr)
        self.before, self.count = {}, 0

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        self.count += 1
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state.setdefault("buffers", {"fast": [torch.zeros_like(p), torch.zeros_like(p)]})
            for number, buffer in enumerate(state["buffers"]["fast"]):
                buffer.mul_(number / 2).add_(p.grad)
            if self.count > 2:
                state["late"] = (p.grad.clone(), torch.stack([p.grad, 2 * p.grad]))
            self.before[p] = p.detach().clone()
            self.state["all"][p] = p.detach().clone()


class Lookahead(optim.Optimizer):
    """Slow weights of its own around another optimiser."""

    def __init__(self, inner):
        self.inner, self.param_groups, self.defaults = inner, inner.param_groups, inner.defaults
        self.state, self.count = defaultdict(dict), 0

    @torch.no_grad()
    def step(self, closure=None):
        self.inner.step()
        self.count += 1
        for p in (p for group in self.param_groups for p in group["params"]):
            slow = self.state[p].setdefault("slow", p.detach().clone())
            if self.count % 2 == 0:
                slow.lerp_(p, 0.5)
                p.copy_(slow)


class Matrices(Counting):
    """A matrix with a row for each connection, from the second step on."""

    @torch.no_grad()
    def step(self, closure=None):
        known = bool(self.state)
        super().step()
        for p in self.param_groups[0]["params"]:
            if known:
                self.state[p]["factor"] = torch.ones(p.numel(), 3)


def test_nested_late_and_outer_state():
    assert ask(lambda p: Nested(p, lr=0.01)) == 2 + 2 + 3 + 1 + 1


def test_the_state_of_an_inner_optimiser():
    assert ask(lambda p: Lookahead(optim.Adam(p, lr=0.01))) == 3
    assert ask(lambda p: Lookahead(Lookahead(optim.SGD(p, lr=0.01, momentum=0.9)))) == 3


def test_state_of_another_shape_is_refused_before_anything_moves():
    net = model()
    method = wb.DeepR(net, Matrices(net.parameters(), lr=0.01))
    backward(method)
    method.step()
    before = wb.wirings(net)[0].theta.detach().clone()
    backward(method)
    with pytest.raises(ValueError, match=r"optimizer \(=Matrices\) keeps 'factor' of shape \(101, 3\), which must be"):
        method.step()
    assert torch.equal(before, wb.wirings(net)[0].theta)
    wb.wirings(net)[0].check()


def test_two_parameters_of_one_shape_cannot_be_told_apart():
    class Outside(Counting):
        @torch.no_grad()
        def step(self, closure=None):
            super().step()
            self.kept = [p.grad.clone() for p in self.param_groups[0]["params"]]

    net = nn.ModuleList([model(), model()])
    net.forward = lambda x: net[0](x) + net[1](x)
    method = wb.DeepR(net, Outside(net.parameters(), lr=0.01))
    backward(method)
    with pytest.raises(ValueError, match=r"keeps 'kept/.' outside of its state, where 2 parameters of the same shape"):
        method.step()


@pytest.mark.parametrize("name", ["ZeroRedundancyOptimizer", "SOAP", "Shampoo", "Kron"])
def test_refused_by_name(name):
    net = model()
    optimizer = type(name, (optim.SGD,), {})(net.parameters(), lr=0.1)
    for inside in (optimizer, Lookahead(optimizer)):
        with pytest.raises(ValueError, match="must keep its state by element, so that it can move with connections"):
            wb.DeepR(net, inside)


@pytest.mark.parametrize("option", ["differentiable", "capturable"])
def test_options_that_cannot_be_kept(option):
    net = model()
    with pytest.raises(ValueError, match=f"has {option}=True, but"):
        wb.DeepR(net, optim.Adam(net.parameters(), lr=0.1, **{option: True}))


def test_schedule_free_optimisers_are_for_methods_without_bound_signs():
    class SGDScheduleFree(optim.SGD):
        pass

    net = model()
    for method in (wb.DeepR, wb.ConstantRate):
        with pytest.raises(ValueError, match=r"evaluates at an average of θ.*wb.SET, wb.RigL and wb.Fixed can take it"):
            method(net, SGDScheduleFree(net.parameters(), lr=0.1))
    wb.SET(net, SGDScheduleFree(net.parameters(), lr=0.1))


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "RMSprop"])
@pytest.mark.parametrize("lr", [-0.1, float("nan"), float("inf")])
def test_learning_rates_that_are_none(optimizer, lr):
    net = model()
    for name, settings in (("DeepR", {"temperature": 1e-5}), ("SET", {}), ("ConstantRate", {})):
        method = getattr(wb, name)(net, getattr(optim, optimizer)(net.parameters(), lr=0.1), **settings)
        backward(method)
        method.optimizer.param_groups[0]["lr"] = lr
        before = [p.detach().clone() for p in net.parameters()]
        with pytest.raises(ValueError, match=r"lr \(=.*\) must be a finite number >= 0"):
            method.step()
        assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_a_learning_rate_in_a_tensor_is_that_number():
    ends = []
    for lr in (0.02, torch.tensor(0.02)):
        net = model()
        method = wb.DeepR(net, optim.SGD(net.parameters(), lr=lr, foreach=False), l1=0.01, temperature=1e-6)
        for _ in range(5):
            backward(method)
            method.step()
            method.optimizer.param_groups[0]["lr"] *= 0.9
        ends.append(wb.wirings(net)[0].theta.detach())
    assert torch.allclose(*ends, atol=1e-6)


def test_maximize_goes_uphill():
    losses = []
    for maximize in (False, True):
        method, _ = run(wb.DeepR, lambda p, m=maximize: optim.SGD(p, lr=0.2, maximize=m), 20, l1=0.0)
        losses.append(F.cross_entropy(method.model(X), Y))
    assert losses[0] < losses[1]


@pytest.mark.parametrize("order", [(wb.SET, wb.DeepR), (wb.DeepR, wb.SET), (wb.Fixed, wb.ConstantRate)])
def test_a_second_method_takes_over(order):
    first, second = order
    net = model()
    old = first(net, optim.SGD(net.parameters(), lr=0.1))
    backward(old)
    old.step()
    weights = [layer.dense_weight() for _, layer in wb.nn.sparse_layers(net)]
    new = second(net, optim.SGD(net.parameters(), lr=0.1))
    assert all(torch.equal(w, x.dense_weight()) for w, (_, x) in zip(weights, wb.nn.sparse_layers(net), strict=True))
    backward(new)
    with pytest.raises(RuntimeError, match=f"a later {second.__name__} has taken over"):
        old.step()
    new.step()
    wb.wirings(net)[0].check()
    again = first(net, optim.SGD(net.parameters(), lr=0.1))
    backward(again)
    again.step()
    with pytest.raises(RuntimeError, match=f"a later {first.__name__} has taken over"):
        new.step()


def test_groups_that_cannot_mean_what_they_say():
    net = model()
    layers = [layer for _, layer in wb.nn.sparse_layers(net)]
    theta = wb.wirings(net)[0].theta
    groups = [{"params": [theta, layers[0].bias]}, {"params": [layers[1].bias], "lr": 0.01}]
    with pytest.warns(UserWarning, match=r"different lr \(0.1 for '0', 0.01 for '2'\).*wb.set_rates\(module, lr=factor\)"):
        wb.DeepR(net, optim.SGD(groups, lr=0.1))
    wb.set_rates(layers[1], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wb.DeepR(net, optim.SGD(groups, lr=0.1))
        # The usual split into weights and biases is no such case.
        wb.set_rates(layers[1], lr=1)
        wb.DeepR(net, optim.SGD([{"params": [theta], "weight_decay": 0.1}, {"params": [s.bias for s in layers]}], lr=0.1))


def test_decay_by_dimension_leaves_theta_out():
    net = nn.Sequential(wb.sparsify(nn.Linear(13, 8), connectivity=0.5), nn.Linear(8, 3))
    groups = [
        {"params": [p for p in net.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    with pytest.warns(UserWarning, match=r"has weight_decay 0 while matrices have 0.1.*choose by name \('theta'\)"):
        wb.DeepR(net, optim.AdamW(groups, lr=0.1))


def test_freezing_by_habit_is_noticed_once():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(13, 9), nn.Linear(9, 9), nn.Linear(9, 3)
            self.head = nn.Sequential(self.b, self.c)

        def forward(self, x):
            return self.head(self.a(x))

    def step(method):
        backward(method)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            method.step()
        return [str(w.message) for w in said if w.category is UserWarning]

    method = _of(Net())
    assert step(method) == []
    for parameter in method.model.a.parameters():  # θ is among them
        parameter.requires_grad = False
    (sentence,) = step(method)
    assert "no connection of 'b', 'c' is trained" in sentence
    assert "wb.freeze(module)" in sentence
    assert step(method) == []
    method = _of(Net())
    method.model.c.bias.requires_grad_(False)
    assert "biases of 'c' are frozen, but their connections are not" in step(method)[0]
    method = _of(Net())
    wb.freeze(method.model.b)
    assert step(method) == []
    method.model.b.bias.requires_grad_(True)
    assert "connections of 'b' are frozen by wb.freeze, but their biases are trained" in step(method)[0]
    method = _of(Net())
    method.model.requires_grad_(False)
    method.model.requires_grad_(True)
    assert step(method) == []


def _of(net):
    net = wb.sparsify(net, connectivity=0.4)
    return wb.DeepR(net, optim.SGD(net.parameters(), lr=0.1))


def test_layers_are_not_frozen_under_a_wrapper():
    net = model()
    method = wb.DeepR(net, Lookahead(optim.SGD(net.parameters(), lr=0.1)))
    wb.freeze(net[0])
    before = wb.wirings(net)[0].theta.detach().clone()
    backward(method)
    with pytest.raises(ValueError, match=r"optimizer \(=Lookahead\), which wraps another: give the inner one"):
        method.step()
    assert torch.equal(before, wb.wirings(net)[0].theta)
