"""Positions and the places of their connections, against a plain dictionary, on both implementations."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wirebound import ops
from wirebound.wiring import LayerShape, Wiring


def _wiring(shapes, positions):
    layers = [LayerShape(str(i), *shape) for i, shape in enumerate(shapes)]
    positions = torch.tensor(positions, dtype=torch.int64)
    weights = torch.where(positions % 3 == 0, -1.0, 1.0)  # the sign bit of a row must not be taken for a part of it
    return Wiring.from_connections(layers, positions, weights)


def _check(wiring, positions, order=None):
    """Every position of the layers, in this order, and every place."""
    backend = ops.backend_on(wiring.colptr.device)
    place = {position: k for k, position in enumerate(positions)}
    asked = list(range(wiring.geometry.possible)) if order is None else order
    found = backend.find(wiring, torch.tensor(asked, dtype=torch.int64))
    assert found.dtype == torch.int64
    assert found.tolist() == [place.get(position, -1) for position in asked]
    places = torch.arange(len(positions))
    assert backend.positions_at(wiring, places).tolist() == positions
    assert backend.positions_at(wiring, places.flip(0)).tolist() == positions[::-1]


@st.composite
def some_connections(draw):
    shapes = draw(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=4))
    possible = sum(a * b for a, b in shapes)
    positions = draw(st.sets(st.integers(0, possible - 1))) if possible else set()
    order = draw(st.lists(st.integers(0, possible - 1))) if possible else []
    return shapes, sorted(positions), order


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=some_connections())
def test_every_position_and_any_order(implementation, case):
    shapes, positions, order = case
    wiring = _wiring(shapes, positions)
    _check(wiring, positions)
    _check(wiring, positions, order)


@pytest.mark.parametrize(
    ("shapes", "positions"),
    [
        ([(3, 4)], []),  # no connection at all
        ([(3, 4)], list(range(12))),  # full
        ([(3, 4)], [0, 11]),  # the first and the last, empty columns in between
        ([(3, 4), (2, 5)], list(range(12))),  # the second layer is empty, the first full
        ([(3, 4), (2, 5)], list(range(12, 22))),
        ([(0, 4), (3, 0), (2, 2), (0, 0), (5, 1), (0, 3)], [0, 3, 4, 8]),  # layers without positions everywhere
        ([(1, 6), (6, 1)], [0, 5, 6, 11]),
    ],
)
def test_edges(implementation, shapes, positions):
    _check(_wiring(shapes, positions), positions)


def test_nothing_is_asked(implementation):
    wiring, nothing = _wiring([(3, 4)], [1, 7]), torch.empty(0, dtype=torch.int64)
    backend = ops.backend_on(nothing.device)
    assert backend.find(wiring, nothing).shape == backend.positions_at(wiring, nothing).shape == (0,)


def test_numbers_that_are_not_next_to_each_other(implementation):
    wiring = _wiring([(3, 4)], [1, 2, 7])
    backend = ops.backend_on(wiring.colptr.device)
    assert backend.find(wiring, torch.arange(12)[1::3]).tolist() == [0, -1, 2, -1]
    assert backend.positions_at(wiring, torch.arange(3)[::2]).tolist() == [1, 7]


def test_both_agree_on_a_large_wiring():
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    wiring = Wiring([LayerShape("a", 300, 784), LayerShape("b", 100, 300)], [2352, 29_000], seed=3)
    asked = torch.cat((wiring.positions(), torch.arange(0, wiring.possible, 7)))
    outcomes = []
    for implementation in ("reference", "native"):
        with ops.use(implementation):
            backend = ops.backend_on(asked.device)
            outcomes.append((backend.find(wiring, asked), backend.positions_at(wiring, torch.arange(wiring.budget))))
    assert torch.equal(outcomes[0][0], outcomes[1][0])
    assert torch.equal(outcomes[0][1], outcomes[1][1])
    assert torch.equal(outcomes[0][1], wiring.positions())


def test_the_kernels_refuse_what_is_outside():
    """Beyond the contract: a position that no layer has must not become an address."""
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    wiring, outside = _wiring([(3, 4), (2, 2)], [1, 13]), torch.tensor([-1, 16, 13, -(1 << 62), 1 << 62, 1])
    with ops.use("native"):
        backend = ops.backend_on(outside.device)
        assert backend.find(wiring, outside).tolist() == [-1, -1, 1, -1, -1, 0]
        assert backend.positions_at(wiring, torch.tensor([-1, 2, 1, 0, 1 << 62])).tolist() == [-1, -1, 13, 1, -1]
