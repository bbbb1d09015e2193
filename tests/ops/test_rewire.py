"""Death and rebirth against a plain-Python model, on both implementations."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wirebound.ops import philox
from wirebound.wiring import LayerShape, Wiring

SLOW = [HealthCheck.function_scoped_fixture]


def _wiring(shapes, counts, seed=0):
    return Wiring([LayerShape(str(i), *s) for i, s in enumerate(shapes)], counts, seed=seed)


@st.composite
def wirings_and_deaths(draw):
    shapes = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3))
    counts = [draw(st.integers(0, a * b)) for a, b in shapes]
    if not sum(counts):
        counts[0] = 1
    budget = sum(counts)
    dead = draw(st.lists(st.integers(0, budget - 1), unique=True, max_size=budget))
    return shapes, counts, sorted(dead), draw(st.booleans()), draw(st.integers(0, 99))


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(case=wirings_and_deaths())
def test_survivors_keep_all_that_is_theirs(implementation, case):
    shapes, counts, dead, by_share, seed = case
    wiring = _wiring(shapes, counts, seed)
    positions = wiring.positions().tolist()
    codes = dict(zip(positions, wiring.packed_rows.tolist(), strict=True))
    value = dict(zip(positions, wiring.theta.tolist(), strict=True))
    momentum = torch.arange(wiring.budget, dtype=torch.float32) + 1
    born = torch.zeros(wiring.budget, dtype=torch.int32)
    ride = dict(zip(positions, momentum.tolist(), strict=True))
    shares = [float(c) for c in counts] if by_share else None
    before = wiring.layer_active
    gained, lost = wiring.rewire_(torch.tensor(dead, dtype=torch.int64), [(momentum, 0), (born, 9)], 9, shares)
    wiring.check()
    assert sum(gained) == sum(lost) == len(dead)
    assert wiring.layer_active == [b + g - d for b, g, d in zip(before, gained, lost, strict=True)]
    survivors = set(positions) - {positions[i] for i in dead}
    now = wiring.positions().tolist()
    assert survivors <= set(now)
    signs = philox.negative_signs(torch.tensor(now), seed, 0).tolist()
    for k, position in enumerate(now):
        if position in survivors:
            assert wiring.packed_rows[k].item() == codes[position]
            assert (wiring.theta[k].item(), momentum[k].item()) == (value[position], ride[position])
            assert born[k] == 0
        else:
            assert (wiring.theta[k].item(), momentum[k].item(), born[k].item()) == (0, 0, 9)
            assert (wiring.packed_rows[k].item() < 0) == signs[k]


@settings(max_examples=60, deadline=None)
@given(case=wirings_and_deaths())
def test_both_implementations_do_the_same(case):
    from wirebound import ops

    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    shapes, counts, dead, by_share, seed = case
    outcomes = []
    for implementation in ("reference", "native"):
        with ops.use("reference"):
            wiring = _wiring(shapes, counts, seed)
        with ops.use(implementation):
            shares = [float(c) for c in counts] if by_share else None
            events = wiring.rewire_(torch.tensor(dead, dtype=torch.int64), [], 5, shares)
            outcomes.append((events, wiring.packed_rows.tolist(), wiring.colptr.tolist(), wiring.theta.tolist()))
    assert outcomes[0] == outcomes[1]


def test_both_do_the_same_where_much_of_a_large_wiring_dies():
    from wirebound import ops

    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    counts = [900_000, 150_000]
    outcomes = []
    for implementation in ("reference", "native"):
        wiring = _wiring([(1100, 1000), (300, 700)], counts)
        dead = torch.rand(wiring.budget, generator=torch.Generator().manual_seed(1)).lt(0.3).nonzero().flatten()
        momentum = torch.arange(wiring.budget, dtype=torch.float64)
        with ops.use(implementation):
            events = wiring.rewire_(dead, [(momentum, 0.0)], 5, [float(c) for c in counts])
        outcomes.append((events, wiring.packed_rows, wiring.colptr, wiring.theta, momentum))
    (events, *arrays), (same_events, *same_arrays) = outcomes
    assert events == same_events
    assert all(torch.equal(one, two) for one, two in zip(arrays, same_arrays, strict=True))


def _trials(implementation):
    """The reference is slow and the kernels are held to its very numbers, so it needs fewer trials."""
    return 5000 if implementation == "native" else 600


def _outcomes(wiring, dead, shares, trials):
    """Rewire the same wiring again and again, each time in another step."""
    state = {name: value.clone() for name, value in wiring.state_dict().items()}
    for step in range(trials):
        wiring.load_state_dict(state)
        born, _ = wiring.rewire_(torch.tensor(dead), [], step, shares)
        yield born, wiring.positions().tolist()


def test_newborns_are_uniform_over_all_dormant_ones(implementation):
    """3 of 5 + 4 positions are active, one dies: each of the 7 then dormant ones is born equally often."""
    wiring = _wiring([(1, 5), (2, 2)], [2, 1], seed=1)
    survivors = set(wiring.positions()[1:].tolist())
    counts: dict[int, int] = {}
    trials = _trials(implementation)
    for _, positions in _outcomes(wiring, [0], None, trials):
        (newborn,) = set(positions) - survivors
        counts[newborn] = counts.get(newborn, 0) + 1
    assert len(counts) == 7
    expected = trials / 7
    assert sum((c - expected) ** 2 / expected for c in counts.values()) < 6 + 5 * math.sqrt(12)


def test_newborns_by_share_follow_the_initial_counts(implementation):
    """Layers drawn 3 : 1, whatever their number of dormant connections."""
    trials = _trials(implementation)
    wiring = _wiring([(4, 5), (20, 20)], [3, 1], seed=1)
    first = sum(born[0] for born, _ in _outcomes(wiring, [1], [3.0, 1.0], trials))
    assert abs(first / trials - 0.75) < 4 * math.sqrt(0.75 * 0.25 / trials)


def test_a_full_layer_passes_its_newborns_on(implementation):
    wiring = _wiring([(2, 2), (5, 5)], [4, 6], seed=0)
    dead = torch.arange(4, 10)  # all of the second layer; the first has no room
    born, died = wiring.rewire_(dead, [], 1, [100.0, 1.0])
    assert (born, died) == ([0, 6], [0, 6])
    wiring.check()


def test_when_all_positions_are_active_the_dead_one_is_born_again(implementation):
    wiring = _wiring([(3, 3)], [9], seed=0)
    wiring.rewire_(torch.tensor([4]), [], 1, None)
    wiring.check()
    assert wiring.theta[4] == 0
    assert wiring.positions().tolist() == list(range(9))


def test_all_connections_may_die_at_once(implementation):
    wiring = _wiring([(6, 7), (3, 2)], [5, 2], seed=0)
    born, _ = wiring.rewire_(torch.arange(7), [], 3, None)
    wiring.check()
    assert sum(born) == 7
    assert wiring.theta.eq(0).all()


def test_a_huge_layer(implementation):
    """A million by a million: positions beyond 32 bits, nothing dense."""
    wiring = _wiring([(10**6, 10**6)], [1000], seed=0)
    wiring.check()
    for step in range(1, 20):
        wiring.rewire_(torch.arange(0, 1000, 7), [], step, None)
        wiring.check()
    assert wiring.positions().max() > 1 << 36
