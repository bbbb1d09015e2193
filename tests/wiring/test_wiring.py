"""The wiring's own promises: exactly K, distinct, sorted, valid, and O(K) to make."""

import copy
import math

import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound.wiring import LayerShape, Wiring, WiringError


def _wiring(**options):
    layers = [LayerShape("a", 30, 20), LayerShape("b", 5, 30)]
    return Wiring(layers, [60, 40], **{"seed": 1, **options})


def test_a_new_wiring_keeps_its_promise():
    wiring = _wiring()
    wiring.check()
    assert (wiring.budget, wiring.active, wiring.possible) == (100, 100, 750)
    assert wiring.layer_active == [60, 40]
    assert wiring.bounds == [0, 60, 100]
    assert wiring.nbytes == 100 * (4 + 4) + 51 * 8


def test_positions_are_uniform():
    """Each of 12 positions is drawn in half of the wirings that have 6."""
    trials = 400
    counts = torch.zeros(12)
    for seed in range(trials):
        counts[Wiring([LayerShape("a", 3, 4)], [6], seed=seed).positions()] += 1
    assert (counts / trials - 0.5).abs().max() < 4.5 * 0.5 / math.sqrt(trials)


def test_first_weights_are_the_papers():
    wiring = Wiring([LayerShape("a", 1000, 400)], [40_000], seed=3)
    weights = wiring.layer_dense(0)
    weights = weights[weights != 0]
    assert abs(weights.mean()) < 4 * 0.05 / math.sqrt(40_000)
    assert abs(weights.std() * math.sqrt(400) - 1) < 0.02
    assert (wiring.theta >= 0).all()


def test_sparse_fan_in_keeps_the_variance():
    wiring = Wiring([LayerShape("a", 1000, 400)], [40_000], seed=3, init="sparse-fan-in")
    assert abs(wiring.theta.detach().square().mean() * 40 - 1) < 0.03


def test_the_seed_decides_and_wirings_of_a_model_differ():
    assert torch.equal(_wiring().packed_rows, _wiring().packed_rows)
    assert not torch.equal(_wiring().packed_rows, _wiring(seed=2).packed_rows)
    assert not torch.equal(_wiring().packed_rows, _wiring(index=1).packed_rows)


def _break_theta(wiring):
    wiring.theta.data[3] = -0.1


def _break_nan(wiring):
    wiring.theta.data[3] = math.nan


def _break_order(wiring):
    start = int(torch.nonzero(wiring.colptr.diff() >= 2)[0])
    first = int(wiring.colptr[start])
    wiring.packed_rows[[first, first + 1]] = wiring.packed_rows[[first + 1, first]]


def _break_twin(wiring):
    start = int(torch.nonzero(wiring.colptr.diff() >= 2)[0])
    first = int(wiring.colptr[start])
    wiring.packed_rows[first + 1] = wiring.packed_rows[first]


def _break_row(wiring):
    wiring.packed_rows[0] = 30


def _break_colptr(wiring):
    wiring.colptr[5] += 90


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_break_theta, r"exactly K \(=100\) connections must be active, 1 have θ < 0"),
        (_break_nan, "θ must be finite, 1 are not, the first at index 3"),
        (_break_order, "distinct and sorted"),
        (_break_twin, "distinct and sorted"),
        (_break_row, "must be inside of its layer"),
        (_break_colptr, "column pointers must rise"),
    ],
)
def test_check_finds_every_kind_of_damage(damage, message):
    wiring = _wiring()
    damage(wiring)
    with pytest.raises(WiringError, match=message):
        wiring.check()


def test_signs_can_be_released_and_bound_without_moving_a_weight():
    wiring = _wiring()
    before = wiring.layer_dense(0)
    wiring.release_signs_()
    wiring.check()
    assert torch.equal(wiring.layer_dense(0), before)
    assert (wiring.theta < 0).any()
    wiring.bind_signs_()
    wiring.check()
    assert torch.equal(wiring.layer_dense(0), before)


def test_state_round_trip_into_another_seed():
    wiring, other = _wiring(), _wiring(seed=9)
    wiring.release_signs_()
    missing, unexpected = other.load_state_dict(wiring.state_dict())
    assert not missing
    assert not unexpected
    assert torch.equal(other.layer_dense(1), wiring.layer_dense(1))
    assert (other.seed, other.sign_bound) == (wiring.seed, False)


def test_a_state_dict_of_before_the_rename_is_loaded():
    """What is packed_rows now was called code."""
    before = nn.Sequential(wb.SparseLinear(8, 6, connectivity=0.5, seed=1))
    state = before.state_dict()
    state["0.wiring.code"] = state.pop("0.wiring.packed_rows")
    after = nn.Sequential(wb.SparseLinear(8, 6, connectivity=0.5, seed=2))
    after.load_state_dict(state)
    assert "0.wiring.code" in state  # the caller's own is as it was
    assert torch.equal(after[0].wiring.packed_rows, before[0].wiring.packed_rows)
    after[0].wiring.check()
    x = torch.randn(3, 8)
    assert torch.equal(after(x), before(x))


def test_from_connections_keeps_weights_and_signs():
    positions = torch.tensor([0, 7, 11])
    weights = torch.tensor([0.5, -0.25, 0.0])
    wiring = Wiring.from_connections([LayerShape("a", 3, 4)], positions, weights)
    wiring.check()
    assert torch.equal(wiring.positions(), positions)
    assert wiring.layer_dense(0).t().reshape(-1)[positions].tolist() == weights.tolist()


def test_deepcopy_is_independent():
    wiring = _wiring()
    wiring.layer_theta(0)  # leaves a piece of a graph behind
    twin = copy.deepcopy(wiring)
    twin.theta.data.zero_()
    assert wiring.theta.abs().sum() > 0
    twin.check()


@pytest.mark.parametrize(("n_out", "n_in"), [(1 << 31, 2), (1 << 30, 1 << 33)])
def test_shapes_beyond_the_index_are_refused(n_out, n_in):
    with pytest.raises(ValueError, match="must"):
        Wiring([LayerShape("a", n_out, n_in)], [1])
