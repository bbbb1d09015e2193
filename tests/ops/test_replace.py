"""Replacing given connections by given positions, against a plain-Python model and against rewiring."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wirebound.wiring import LayerShape, Wiring, draw_newborns


@st.composite
def cases(draw):
    shapes = draw(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=1, max_size=3))
    counts = [draw(st.integers(0, a * b)) for a, b in shapes]
    counts[0] = max(1, counts[0])
    return shapes, counts, draw(st.integers(0, 99)), draw(st.booleans())


def _wiring(shapes, counts, seed):
    return Wiring([LayerShape(str(i), *s) for i, s in enumerate(shapes)], counts, seed=seed)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), data=st.data())
def test_everyone_stands_where_they_belong(implementation, case, data):
    shapes, counts, seed, bound = case
    wiring = _wiring(shapes, counts, seed)
    if not bound:
        wiring.release_signs_()
    before = dict(zip(wiring.positions().tolist(), wiring.theta.tolist(), strict=True))
    dead = sorted(data.draw(st.sets(st.integers(0, wiring.budget - 1))))
    survivors = [p for i, p in enumerate(before) if i not in dead]
    dormant = sorted(set(range(wiring.possible)) - set(survivors))
    newborns = sorted(data.draw(st.permutations(dormant))[: len(dead)])
    ride = wiring.positions().to(torch.float64)
    age = torch.zeros(wiring.budget, dtype=torch.int32)
    strength = torch.rand(len(newborns), generator=torch.Generator().manual_seed(seed))
    carried = [(ride, -torch.tensor(newborns, dtype=torch.float64)), (age, 9)]
    born, died = wiring.replace_(*(torch.tensor(v, dtype=torch.int64) for v in (dead, newborns)), carried, strength)
    wiring.check()
    assert sum(born) == sum(died) == len(dead)
    now = wiring.positions().tolist()
    assert now == sorted(survivors + newborns)
    negative = dict(zip(now, wiring.negative_signs(torch.tensor(now)).tolist(), strict=True))
    for k, p in enumerate(now):
        if p in newborns:
            expected = strength[newborns.index(p)].item()
            weight = expected * (-1 if negative[p] and not bound else 1)
            assert (wiring.theta[k].item(), ride[k].item(), age[k].item()) == (weight, -p, 9)
            assert (wiring.packed_rows[k].item() < 0) == (bound and negative[p])
        else:
            assert (wiring.theta[k].item(), ride[k].item(), age[k].item()) == (before[p], p, 0)
    assert wiring.bounds == [0, *torch.tensor(wiring.layer_active).cumsum(0).tolist()]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), data=st.data())
def test_drawing_and_replacing_is_rewiring(implementation, case, data):
    shapes, counts, seed, by_share = case
    one, other = _wiring(shapes, counts, seed), _wiring(shapes, counts, seed)
    dead = torch.tensor(sorted(data.draw(st.sets(st.integers(0, one.budget - 1)))), dtype=torch.int64)
    shares = [float(n) for n in counts] if by_share else None
    events = one.rewire_(dead, [], 4, shares)
    positions = other.positions()
    alive = torch.ones(other.budget, dtype=torch.bool)
    alive[dead] = False
    newborns = draw_newborns(other, positions[alive], positions[dead], 4, shares=shares)
    assert other.replace_(dead, newborns, []) == events
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    ("newborns", "message"),
    [
        ([1], r"newborns \(=1\) must be as many as the dead \(=2\)"),
        ([3, 1], "distinct and sorted"),
        ([1, 1], "distinct and sorted"),
        ([1, 12], r"must be in \[0, 12\)"),
        ([-1, 1], r"must be in \[0, 12\)"),
        ([1, 7], "newborns must be dormant"),
    ],
)
def test_positions_that_cannot_be_born_are_refused_before_anything_moves(newborns, message):
    weights = torch.tensor([0.5, -0.25, 1.0, 2.0])
    wiring = Wiring.from_connections([LayerShape("a", 3, 4)], torch.tensor([0, 4, 7, 11]), weights)
    before = wiring.layer_dense(0)
    with pytest.raises(ValueError, match=message):
        wiring.replace_(torch.tensor([0, 1]), torch.tensor(newborns), [])
    assert torch.equal(wiring.layer_dense(0), before)
    wiring.replace_(torch.tensor([0, 1]), torch.tensor([0, 1]), [])  # the dead may be born again
    wiring.check()
