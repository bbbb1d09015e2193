"""What is derived from a tensor belongs to that very tensor: nobody is given the numbers of an older one."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import wirebound as wb


def _twin(model, x):
    return wb.to_dense(model)(x)


def test_functional_call(model, x):
    model(x)
    zeros = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    assert not torch.func.functional_call(model, zeros, (x,)).any()
    halves = {name: 0.5 * p.detach() for name, p in model.named_parameters()}
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(0.5)
    torch.testing.assert_close(torch.func.functional_call(model, halves, (x,)), _twin(other, x))
    torch.testing.assert_close(model(x), _twin(model, x))


def test_gradients_through_functional_call_go_to_what_was_given(model, x):
    model(x).sum().backward()
    given = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    torch.func.functional_call(model, given, (x,)).sum().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(given[name].grad, p.grad)


def test_vector_to_parameters(model, x):
    model(x)
    vector_to_parameters(0.25 * parameters_to_vector(model.parameters()), model.parameters())
    torch.testing.assert_close(model(x), _twin(model, x))
    vector_to_parameters(torch.zeros_like(parameters_to_vector(model.parameters())), model.parameters())
    assert not model(x).any()


def test_another_storage(model, x):
    model(x)
    for p in model.parameters():
        p.data = torch.zeros_like(p)
    assert not model(x).any()


def test_a_critic_that_is_frozen_and_unfrozen_in_turns_trains(model, x, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rewiring = wb.DeepR(model, optimizer, l1=1e-4)
    for _ in range(20):
        model.requires_grad_(False)
        model(x)
        model.requires_grad_(True)
        before = [p.detach().clone() for p in model.parameters()]
        rewiring.zero_grad()
        F.cross_entropy(model(x), y).backward()
        assert all(p.grad is not None and p.grad.any() for p in model.parameters())
        rewiring.step()
        assert all(not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_positions_written_in_place_are_read_anew(model, x):
    model(x)
    other = wb.sparsify(wb.to_dense(model), connectivity=0.2, seed=7)
    expected = _twin(other, x)
    with torch.no_grad():  # as AveragedModel and the broadcast of DistributedDataParallel do it
        for mine, theirs in zip([*model.parameters(), *model.buffers()], [*other.parameters(), *other.buffers()], strict=True):
            mine.detach().copy_(theirs.detach())
    (wiring,) = wb.wirings(model)
    torch.testing.assert_close(model(x), expected)
    wiring.check()
    assert wiring.bounds == wb.wirings(other)[0].bounds
    assert wiring.seed == 7  # the next draws are those of whoever was copied


@pytest.mark.parametrize("inference", [False, True])
def test_a_model_made_or_used_in_inference_mode(x, inference):
    with torch.inference_mode(inference):
        model = wb.sparsify(torch.nn.Sequential(torch.nn.Linear(20, 8), torch.nn.Linear(8, 3)), connectivity=0.3)
        torch.testing.assert_close(model(x), _twin(model, x))


def test_deepcopy_does_not_share_what_was_derived(model, x):
    model(x)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    assert not other(x).any()
    assert model(x).any()
