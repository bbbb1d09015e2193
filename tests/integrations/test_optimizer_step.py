"""``optimizer.step()`` is the step of the attached method, whoever calls it; detached, it is a plain optimiser again."""

import copy
import gc
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound.methods import attached

X = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)
OPTIMIZERS = [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop]
PLAIN = {
    "dense": wb.Dense,
    "l1": lambda m, o: wb.L1Shrinkage(m, o, l1=0.05),
    "pruning": lambda m, o: wb.MagnitudePruning(m, o, total_steps=12, connectivity=0.4),
    "soft": lambda m, o: wb.SoftDeepR(m, o, l1=0.02, temperature=1e-5, theta_min=-0.01, connectivity=0.4),
}


def _plain_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))


def _make(optimizer_class=torch.optim.Adam, method=wb.DeepR, **settings):
    model = wb.sparsify(_plain_model(), connectivity=0.3, seed=5)
    return method(model, optimizer_class(model.parameters(), lr=0.02), **settings)


def _run(method, steps, stepper=None, scheduler=None):
    """Steps by the optimiser (or ``stepper``); exactly K, and a valid wiring, after every one."""
    stepper = method.optimizer if stepper is None else stepper
    for _ in range(steps):
        F.cross_entropy(method.model(X), Y).backward()
        stepper.step()
        stepper.zero_grad()
        for wiring in wb.wirings(method.model):
            wiring.check()
            assert wiring.active == wiring.budget or not method.promises_budget
        if scheduler is not None:
            scheduler.step()


def _same(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("optimizer_class", OPTIMIZERS)
@pytest.mark.parametrize("method", [wb.DeepR, wb.SET, wb.RigL, wb.ConstantRate, wb.Fixed])
def test_both_spellings_are_one_step(optimizer_class, method):
    settings = {"l1": 0.05} if method in (wb.DeepR, wb.ConstantRate) else {"every": 3} if method in (wb.SET, wb.RigL) else {}
    one, two = _make(optimizer_class, method, **settings), _make(optimizer_class, method, **settings)
    _run(one, 10)
    _run(two, 10, stepper=two)
    assert one.steps == two.steps == 10
    assert one.info == two.info
    assert _same(one.model, two.model)


@pytest.mark.parametrize("name", PLAIN)
def test_methods_on_plain_models_attach_the_same_way(name):
    runs = []
    for by_method in (False, True):
        model = _plain_model()
        method = PLAIN[name](model, torch.optim.Adam(model.parameters(), lr=0.02))
        _run(method, 12, stepper=method if by_method else None)
        assert method.info.step == method.steps == 12
        runs.append(model)
    assert _same(*runs)


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_method_resumes_from_model_and_optimiser(name):
    def make():
        model = _plain_model()
        return PLAIN[name](model, torch.optim.Adam(model.parameters(), lr=0.02))

    whole, first, second = make(), make(), make()
    _run(whole, 12)
    _run(first, 6)
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    _run(second, 6)
    assert second.steps == 12
    assert _same(whole.model, second.model)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("optimizer_class", OPTIMIZERS)
def test_lr_schedulers_made_before_or_after(optimizer_class, when):
    ends = []
    for made in ("after", when):
        model = wb.sparsify(_plain_model(), connectivity=0.3, seed=5)
        optimizer = optimizer_class(model.parameters(), lr=0.02)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5) if made == "before" else None
        method = wb.DeepR(model, optimizer, l1=0.05)
        scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns where it believes that no step was taken
            _run(method, 10, scheduler=scheduler)
        assert optimizer.param_groups[0]["lr"] == 0.02 * 0.5**3
        assert hasattr(optimizer.step, "__func__")
        ends.append(model)
    assert _same(*ends)


@pytest.mark.parametrize("optimizer_class", OPTIMIZERS)
def test_hooks_fire_once_around_the_whole_step(optimizer_class):
    method = _make(optimizer_class, l1=0.05)
    (wiring,) = wb.wirings(method.model)
    seen = []
    method.optimizer.register_step_pre_hook(lambda *_: seen.append(("pre", method.steps, wiring.theta.sum().item())))

    def post(*_):
        wiring.check()
        seen.append(("post", method.steps, wiring.theta.sum().item()))

    method.optimizer.register_step_post_hook(post)
    _run(method, 3)
    assert [(name, steps) for name, steps, _ in seen] == [(n, s + (n == "post")) for s in range(3) for n in ("pre", "post")]
    assert seen[1][2] == seen[2][2] != seen[0][2]


def test_a_closure_is_evaluated_once_before_the_step():
    plain, inside = _make(l1=0.05), _make(l1=0.05)
    _run(plain, 5)
    calls = []

    def closure():
        calls.append(inside.steps)
        inside.optimizer.zero_grad()
        loss = F.cross_entropy(inside.model(X), Y)
        loss.backward()
        return loss

    with torch.no_grad():  # trainers call step() without gradients
        losses = [inside.optimizer.step(closure).item() for _ in range(5)]
    assert calls == [0, 1, 2, 3, 4]
    assert _same(plain.model, inside.model)
    assert losses[-1] < losses[0]


def test_accumulated_and_clipped_gradients():
    whole, parts = _make(torch.optim.SGD, l1=0.05), _make(torch.optim.SGD, l1=0.05)
    for _ in range(5):
        F.cross_entropy(whole.model(X), Y).backward()
        for half in (slice(0, 20), slice(20, 40)):
            (F.cross_entropy(parts.model(X[half]), Y[half]) / 2).backward()
        for method in (whole, parts):
            nn.utils.clip_grad_norm_(method.model.parameters(), 0.1)
            method.optimizer.step()
            method.optimizer.zero_grad()
            wb.wirings(method.model)[0].check()
    assert whole.steps == parts.steps == 5
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda things: pickle.loads(pickle.dumps(things))])
def test_a_copy_of_all_three_trains_on_its_own(way):
    method = _make(l1=0.05)
    _run(method, 3)
    model, optimizer, twin = way((method.model, method.optimizer, method))
    assert attached(optimizer) is twin
    assert twin.model is model
    _run(method, 3)
    assert (method.steps, twin.steps) == (6, 3)
    _run(twin, 3)
    assert _same(method.model, twin.model)


def test_a_copied_optimiser_alone_is_a_plain_one():
    method = _make()
    assert attached(copy.deepcopy(method.optimizer)) is None


def test_nobody_need_keep_the_method():
    model = wb.sparsify(_plain_model(), connectivity=0.3, seed=5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    wb.DeepR(model, optimizer, l1=0.05)
    gc.collect()
    _run(attached(optimizer), 5)
    assert attached(optimizer).steps == 5


def test_detached_it_is_a_plain_optimiser_again():
    method, other = _make(l1=0.05), _make(l1=0.05)
    optimizer, scheduler = method.optimizer, torch.optim.lr_scheduler.StepLR(method.optimizer, 3, 0.5)
    _run(method, 3, scheduler=scheduler)
    assert "wirebound" in optimizer.state_dict()
    method.detach()
    assert attached(optimizer) is None
    assert not {"step", "zero_grad"} & set(vars(optimizer))
    assert "wirebound" not in optimizer.state_dict()
    with pytest.raises(RuntimeError, match="this DeepR is detached from its optimiser: make a new DeepR"):
        method.step()
    weights = [layer.dense_weight() for _, layer in wb.nn.sparse_layers(method.model)]
    before = wb.wirings(method.model)[0].positions()
    _run(method, 5)  # by the optimiser: weights may cross zero, connections stay
    assert method.steps == 3
    assert torch.equal(before, wb.wirings(method.model)[0].positions())
    assert not torch.equal(weights[0], next(wb.nn.sparse_layers(method.model))[1].dense_weight())
    again = wb.SET(method.model, optimizer, every=2)
    _run(again, 4)
    again.detach()
    _run(wb.DeepR(method.model, optimizer, l1=0.05), 4)
    _run(other, 3)


def test_a_step_wrapped_by_others_passes_through_after_detaching():
    method = _make(torch.optim.SGD)
    inner = method.optimizer.step
    method.optimizer.step = lambda closure=None: inner(closure)
    _run(method, 2)
    method.detach()
    _run(method, 2)
    assert method.steps == 2


def test_what_cannot_work_is_refused():
    method = _make()
    with pytest.raises(ValueError, match=r"optimizer \(=Adam\) has a DeepR attached already: call its detach\(\) first"):
        wb.SET(method.model, method.optimizer)
    model = wb.sparsify(_plain_model(), connectivity=0.3)
    for kind in (wb.DeepR, wb.Fixed):
        with pytest.raises(ValueError, match=r"optimizer \(=LBFGS\) evaluates a closure several times in a step.*use one"):
            kind(model, torch.optim.LBFGS(model.parameters()))
    plain = _plain_model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    wb.Dense(plain, optimizer)
    with pytest.raises(ValueError, match="has a Dense attached already"):
        wb.L1Shrinkage(plain, optimizer)
