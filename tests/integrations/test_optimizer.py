"""A method in the shape of an optimiser: the same steps, and a state dict that brings the method along."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound.integrations import RewiringOptimizer

X = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)


def _make(optimizer_class=torch.optim.Adam, method=wb.DeepR, **settings):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))
    model = wb.sparsify(model, connectivity=0.3, seed=5)
    return method(model, optimizer_class(model.parameters(), lr=0.02), **settings)


def _run(step, zero_grad, model, steps, scheduler=None):
    for _ in range(steps):
        F.cross_entropy(model(X), Y).backward()
        step()
        zero_grad()
        if scheduler is not None:
            scheduler.step()


def _same(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
@pytest.mark.parametrize("scheduler_of", ["wrapper", "inner"])
def test_steps_are_those_of_the_method(optimizer_class, scheduler_of):
    plain, inside = _make(optimizer_class, l1=0.05), _make(optimizer_class, l1=0.05)
    wrapper = RewiringOptimizer(inside)
    schedule = torch.optim.lr_scheduler.StepLR(plain.optimizer, 5, 0.5)
    other = torch.optim.lr_scheduler.StepLR(wrapper if scheduler_of == "wrapper" else inside.optimizer, 5, 0.5)
    _run(plain.step, plain.zero_grad, plain.model, 20, schedule)
    _run(wrapper.step, wrapper.zero_grad, inside.model, 20, other)
    assert _same(plain.model, inside.model)
    assert wrapper.info.active == wrapper.info.budget == inside.budget
    assert wrapper.param_groups[0]["lr"] == plain.optimizer.param_groups[0]["lr"] == 0.02 * 0.5**4


def test_a_closure_leaves_the_gradients():
    plain, inside = _make(l1=0.05), _make(l1=0.05)
    wrapper = RewiringOptimizer(inside)
    _run(plain.step, plain.zero_grad, plain.model, 5)

    def closure():
        wrapper.zero_grad()
        loss = F.cross_entropy(inside.model(X), Y)
        loss.backward()
        return loss

    with torch.no_grad():  # trainers call step() without gradients
        losses = [wrapper.step(closure).item() for _ in range(5)]
    assert _same(plain.model, inside.model)
    assert losses[-1] < losses[0]


def test_state_dict_brings_the_method_along():
    whole = RewiringOptimizer(_make(l1=0.05))
    _run(whole.step, whole.zero_grad, whole.method.model, 10)
    first = RewiringOptimizer(_make(l1=0.05))
    _run(first.step, first.zero_grad, first.method.model, 5)
    kept = copy.deepcopy((first.method.model.state_dict(), first.state_dict()))
    second = RewiringOptimizer(_make(l1=0.05))
    second.method.model.load_state_dict(kept[0])
    second.load_state_dict(kept[1])
    _run(second.step, second.zero_grad, second.method.model, 5)
    assert second.method.steps == 10
    assert _same(whole.method.model, second.method.model)


def test_hooks_and_groups_are_those_of_the_inner_optimiser():
    method = _make()
    wrapper = RewiringOptimizer(method)
    called = []
    wrapper.register_step_post_hook(lambda *_: called.append(1))
    _run(wrapper.step, wrapper.zero_grad, method.model, 3)
    assert len(called) == 3
    extra = nn.Parameter(torch.zeros(2))
    wrapper.add_param_group({"params": [extra]})
    assert method.optimizer.param_groups[1]["params"] == [extra]
    assert wrapper.state is method.optimizer.state
    assert "DeepR" in repr(wrapper)


def test_a_copy_trains_on_its_own():
    wrapper = RewiringOptimizer(_make(l1=0.05))
    _run(wrapper.step, wrapper.zero_grad, wrapper.method.model, 3)
    twin = copy.deepcopy(wrapper)
    _run(wrapper.step, wrapper.zero_grad, wrapper.method.model, 3)
    assert (wrapper.method.steps, twin.method.steps) == (6, 3)
    _run(twin.step, twin.zero_grad, twin.method.model, 3)
    assert _same(wrapper.method.model, twin.method.model)


def test_foreign_state_is_refused():
    wrapper = RewiringOptimizer(_make())
    with pytest.raises(ValueError, match="kept without RewiringOptimizer"):
        wrapper.load_state_dict(torch.optim.SGD(wrapper.method.model.parameters(), lr=0.1).state_dict())
    with pytest.raises(ValueError, match="is of Fixed, here it is DeepR"):
        wrapper.load_state_dict(RewiringOptimizer(_make(method=wb.Fixed)).state_dict())
