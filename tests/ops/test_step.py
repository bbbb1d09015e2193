"""``step_``: update and rewiring in one, on both implementations."""

import dataclasses

import pytest
import torch

from wirebound import ops
from wirebound.ops.philox import Stream, stream_of
from wirebound.ops.rule import NO_STATE, DriftAndNoise, Rule, RuleKind, State
from wirebound.wiring import LayerShape, Wiring


def _wiring(dtype=torch.float32):
    shapes = [LayerShape("a", 20, 30), LayerShape("b", 7, 20)]
    return Wiring(shapes, [60, 30], seed=3, index=1, dtype=dtype)


def _state(kind, like):
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.rand(like.shape, dtype=like.dtype, generator=generator) for _ in range(2))
    if kind is RuleKind.ADAM:
        return State(exp_avg=first, exp_avg_sq=second, born=torch.zeros(like.shape, dtype=torch.int32))
    return State(momentum=first) if kind is RuleKind.SGD else NO_STATE


def _carried(state, step):
    found = [(t, 0.0) for t in (state.momentum, state.exp_avg, state.exp_avg_sq) if t is not None]
    return [*found, (state.born, step)] if state.born is not None else found


@pytest.mark.parametrize("kind", list(RuleKind))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shares", [None, [60.0, 30.0]])
def test_it_is_the_update_and_then_the_rewiring(implementation, kind, dtype, shares):
    one, two = _wiring(dtype), _wiring(dtype)
    states = [_state(kind, w.theta) for w in (one, two)]
    total = 0
    for step in range(1, 30):
        grad = torch.randn(90, dtype=dtype, generator=torch.Generator().manual_seed(step))
        rule = Rule(kind, lr=0.05, momentum=0.5 if kind is RuleKind.SGD else 0.0)
        drifts = [DriftAndNoise(0, 90, 0.002, 0.01)]
        clamp = step % 5 == 0
        versions = one.theta._version
        before = one.changing()
        states = [dataclasses.replace(state, clock=step) for state in states]
        backend = ops.backend_of(one.theta)
        born, died, active = backend.step_(
            one, one.theta, grad, rule, states[0], drifts, _carried(states[0], step), step, shares, clamp=clamp
        )
        born, died = one.changed(before, born, died)
        assert one.theta._version > versions
        assert ops.numbers(active) == one.layer_places
        dead = backend.update_(
            two.theta.detach(), grad, rule, states[1], drifts, two.seed, stream_of(Stream.NOISE, two.index), step,
            sign_bound=True, clamp=clamp,
        )  # fmt: skip
        expected = ([0, 0], [0, 0])
        if len(dead):
            expected = two.rewire_(dead, _carried(states[1], step), step, shares)
        assert (born, died) == expected
        assert sum(born) == len(dead)
        assert not (clamp and sum(born))
        for a, b in zip([one.theta, one.packed_rows, one.colptr], [two.theta, two.packed_rows, two.colptr], strict=True):
            assert torch.equal(a, b)
        for (a, _), (b, _) in zip(_carried(states[0], step), _carried(states[1], step), strict=True):
            assert torch.equal(a, b)
        assert one.bounds == two.bounds
        one.check()
        total += sum(born)
    assert total > 30


def test_it_notices_tensors_that_have_moved(implementation):
    one, two = _wiring(), _wiring()
    for step in range(1, 12):
        grad = torch.full((90,), 0.1)
        for wiring in (one, two):
            before = wiring.changing()
            rule, drifts = Rule(RuleKind.SGD, lr=0.05), [DriftAndNoise(0, 90, 0.01, 0.0)]
            born, died, _ = ops.backend_of(wiring.theta).step_(
                wiring, wiring.theta, grad, rule, NO_STATE, drifts, [], step, None, clamp=False
            )
            wiring.changed(before, born, died)
        # The first wiring's memory is given away and taken anew, as .to() does it.
        one.theta.data = one.theta.data.clone()
        one.packed_rows, one.colptr = one.packed_rows.clone(), one.colptr.clone()
        assert torch.equal(one.theta, two.theta)
        assert torch.equal(one.packed_rows, two.packed_rows)
        one.check()


def test_a_step_that_cannot_be_taken_leaves_everything_as_it_was(implementation):
    wiring = _wiring()
    packed_rows, theta = wiring.packed_rows.clone(), wiring.theta.detach().clone()
    grad = torch.zeros(90)
    grad[5] = torch.nan
    with pytest.raises(FloatingPointError, match="step 4 was not taken"):
        ops.backend_of(wiring.theta).step_(
            wiring, wiring.theta, grad, Rule(RuleKind.SGD, lr=0.05), NO_STATE,
            [DriftAndNoise(0, 90, 1.0, 0.0)], [], 4, None, clamp=False,
        )  # fmt: skip
    assert torch.equal(wiring.packed_rows, packed_rows)
    assert torch.equal(wiring.theta, theta)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.float16, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("many", [False, True])
def test_arrays_of_every_width_move_with_their_connections(implementation, dtype, many):
    wiring = _wiring()
    mark = (torch.arange(90) % 120).to(dtype)
    beside = mark.to(torch.float64)  # the same values in an array that has always moved rightly
    dead = torch.arange(0, 90, 2 if many else 17)
    wiring.rewire_(dead, [(mark, 0.0), (beside, 0.0)], 1, None)
    assert torch.equal(mark.to(torch.float64), beside)
    wiring.check()


def test_an_array_of_another_length_is_refused_before_anything_moves(implementation):
    wiring = _wiring()
    packed_rows = wiring.packed_rows.clone()
    with pytest.raises((RuntimeError, IndexError)):
        wiring.rewire_(torch.tensor([3]), [(torch.zeros(89), 0.0)], 1, None)
    assert torch.equal(wiring.packed_rows, packed_rows)
    wiring.check()
