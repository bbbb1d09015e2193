"""Caps on fan-in and fan-out and signs of neurons: the first draw, newborns, repair, and what is refused."""

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import wirebound as wb
from wirebound.checkpoint.model_state import wiring_fault
from wirebound.ops.layout import Geometry
from wirebound.wiring import LayerShape, Wiring, WiringError, allocate, draw_newborns
from wirebound.wiring.room import Numbers, Room, augment, regular

SLOW = [HealthCheck.function_scoped_fixture]


@st.composite
def cases(draw):
    """Layers with caps, and counts that they allow, often as many as they allow."""
    shapes = draw(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=3))
    layers = [LayerShape(str(i), *shape) for i, shape in enumerate(shapes)]
    cap = st.one_of(st.none(), st.integers(1, 4))
    kept = wb.Constraints(draw(cap), draw(cap), draw(st.sampled_from([None, 0.0, 0.5, 0.8])))
    most = [kept.capacity(layer) for layer in layers]
    counts = [draw(st.sampled_from([n, n - n // 4, n // 2])) for n in most]
    counts[0] = max(1, counts[0])
    return layers, kept, counts, draw(st.integers(0, 50))


@settings(max_examples=50, deadline=None, suppress_health_check=SLOW)
@given(case=cases(), data=st.data())
def test_they_hold_at_the_start_and_after_every_rewiring(implementation, case, data):
    layers, kept, counts, seed = case
    wiring = Wiring(layers, counts, seed=seed, constraints=kept)
    wiring.check()
    assert wiring.layer_active == counts
    momentum = wiring.positions().to(torch.float32)
    for step in range(1, 5):
        before, survivors_should = wiring.positions().tolist(), wiring.budget
        dead = data.draw(st.lists(st.integers(0, wiring.budget - 1), unique=True, max_size=wiring.budget))
        shares = data.draw(st.sampled_from([None, [float(n) for n in counts]]))
        born, died = wiring.rewire_(torch.tensor(sorted(dead), dtype=torch.int64), [(momentum, -1.0)], step, shares)
        wiring.check()
        assert sum(born) == sum(died) == len(dead)
        survivors_should -= len(dead)
        now = wiring.positions().tolist()
        assert {before[i] for i in range(len(before)) if i not in dead} <= set(now)
        # What rides along is still that of its own connection; newborns have the value of newborns.
        riding = [int(m) == p for m, p in zip(momentum.tolist(), now, strict=True)]
        assert sum(riding) == survivors_should
        momentum = wiring.positions().to(torch.float32)


def _reference_fill(n_out, n_in, caps, occupied, candidates, count):
    rows, columns = [0] * n_out, [0] * n_in
    for p in occupied:
        rows[p % n_out] += 1
        columns[p // n_out] += 1
    taken = []
    for p in candidates:
        if len(taken) < count and rows[p % n_out] < caps[0] and columns[p // n_out] < caps[1]:
            rows[p % n_out] += 1
            columns[p // n_out] += 1
            taken.append(p)
    return taken


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_taking_in_order_is_what_a_loop_does(data):
    n_out, n_in = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    order = data.draw(st.permutations(range(n_out * n_in)))
    caps = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    occupied = sorted(_reference_fill(n_out, n_in, caps, [], order[: data.draw(st.integers(0, 4))], 99))
    candidates = [p for p in order if p not in occupied]
    count = data.draw(st.integers(0, 20))
    room = Room(Geometry((n_out,), (n_in,)), torch.tensor([[caps[0]], [caps[1]]]), torch.tensor(occupied, dtype=torch.int64))
    taken = room.take(torch.tensor(candidates, dtype=torch.int64), count).tolist()
    assert taken == _reference_fill(n_out, n_in, caps, occupied, candidates, count)
    assert room.occupied.tolist() == sorted(occupied + taken)


def test_a_newborn_is_uniform_over_the_positions_that_keep_the_caps():
    """χ² over the allowed positions of two layers, in other steps of the same wiring."""
    layers = [LayerShape("a", 4, 5), LayerShape("b", 3, 4)]
    wiring = Wiring(layers, [8, 5], seed=3, constraints=wb.Constraints(max_fan_in=3, max_fan_out=2))
    positions = wiring.positions()
    survivors, dead = positions[torch.arange(13) != 4], positions[4:5]
    room = Room(wiring.geometry, wiring.fan_caps, survivors)
    cells = [room.open_cells(0, 0, 5).t().reshape(-1), room.open_cells(1, 0, 4).t().reshape(-1)]
    allowed = sorted(set(torch.nonzero(torch.cat(cells)).view(-1).tolist()) - set(survivors.tolist()))
    trials = 1200
    counts = dict.fromkeys(allowed, 0)
    for step in range(trials):
        (born,) = draw_newborns(wiring, survivors, dead, step).tolist()
        counts[born] += 1
    assert 6 <= len(allowed) <= 20
    expected = trials / len(allowed)
    statistic = sum((n - expected) ** 2 / expected for n in counts.values())
    assert statistic < len(allowed) - 1 + 4 * (2 * (len(allowed) - 1)) ** 0.5


def test_a_corner_is_left_by_an_augmenting_path():
    """Two rows and columns with one connection each died; the first newborn blocks the only place of the second."""
    # Caps 2 on a 3 × 3 matrix; survivors make row 1 and column 0 meet at an active connection.
    geometry, caps = Geometry((3,), (3,)), torch.tensor([[2], [2]])
    survivors = torch.tensor([1, 5, 6, 8])  # (column, row): (0, 1), (1, 2), (2, 0), (2, 2)
    dead = torch.tensor([0, 4])  # (0, 0) and (1, 1)
    room = Room(geometry, caps, survivors)
    newborn = room.take(torch.tensor([3]), 1)  # (1, 0): row 1 and column 0 are left, which meet at a survivor
    assert room.draw(1, Numbers(0, 3, 1, torch.device("cpu"))).numel() == 0
    repaired = augment(room, newborn, dead, 1)
    assert repaired.tolist() == [0, 4]
    assert room.occupied.tolist() == [0, 1, 4, 5, 6, 8]
    assert room.inward.tolist() == room.outward.tolist() == [0, 0, 0]


def test_the_repair_is_needed_and_rare():
    """At full caps on both sides, newborns get stuck now and then; with some slack hardly ever."""
    layer = [LayerShape("a", 8, 8)]
    for budget, least, most in ((40, 3, 60), (24, 0, 1)):
        wiring = Wiring(layer, [budget], seed=1, constraints=wb.Constraints(max_fan_in=5, max_fan_out=5))
        stuck = 0
        for step in range(1, 61):
            positions = wiring.positions()
            dead = torch.arange(step % 3, budget, 3)
            alive = torch.ones(budget, dtype=torch.bool)
            alive[dead] = False
            room = Room(wiring.geometry, wiring.fan_caps, positions[alive])
            stuck += room.draw(len(dead), Numbers(1, 3, step, torch.device("cpu"))).numel() < len(dead)
            wiring.rewire_(dead, [], step, None)
            wiring.check()
        assert least <= stuck <= most


@settings(max_examples=100, deadline=None)
@given(n_out=st.integers(1, 12), n_in=st.integers(1, 12), data=st.data())
@example(n_out=6, n_in=4, data=None)
def test_the_regular_wiring_is_even(n_out, n_in, data):
    count = n_out * n_in if data is None else data.draw(st.integers(0, n_out * n_in))
    positions = regular(n_out, n_in, count)
    assert positions.unique().numel() == count
    assert torch.bincount(positions % n_out, minlength=n_out).max() <= -(-count // n_out)
    assert torch.bincount(positions // n_out, minlength=n_in).max() <= -(-count // n_in)


def test_signs_belong_to_inputs_for_good():
    layers = [LayerShape("a", 20, 50), LayerShape("b", 5, 20)]
    wiring = Wiring(layers, [200, 40], seed=2, constraints=wb.Constraints(dale={"a": 0.8}))
    signs = wiring.column_signs
    assert ((signs[:50] == 1).sum(), (signs[:50] == -1).sum(), (signs[50:] == 0).sum()) == (40, 10, 20)
    for step in range(1, 20):
        wiring.rewire_(torch.arange(step % 5, 240, 5), [], step, None)
        wiring.check()
        wiring.theta.data.add_(0.1)
        dense = wiring.layer_dense(0)
        assert (dense * signs[:50] >= 0).all()
    assert (wiring.layer_dense(1) < 0).any()
    assert (wiring.layer_dense(1) > 0).any()
    wiring.release_signs_()
    assert wiring.sign_bound
    given_signs = Wiring([LayerShape("a", 4, 3)], [6], constraints=wb.Constraints(dale=[1, -1, 0]))
    assert given_signs.column_signs.tolist() == [1, -1, 0]
    assert (given_signs.layer_dense(0)[:, 0] >= 0).all()
    assert (given_signs.layer_dense(0)[:, 1] <= 0).all()


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ({"max_fan_in": 2}, r"max_fan_in \(=2\) of layer 'a' allows 8 connections at 4 outputs, fewer than its 9"),
        ({"max_fan_out": 1}, r"max_fan_out \(=1\) of layer 'a' allows 5 connections at 5 inputs, fewer than its 9"),
        ({"max_fan_in": 0}, r"max_fan_in of layer 'a' \(=0\) must be a whole number >= 1"),
        ({"max_fan_in": {"c": 2}}, r"max_fan_in names layer 'c', which must be one of a, b"),
        ({"dale": 1.5}, r"dale of layer 'a' \(=1.5\) must be a share in \[0, 1\]"),
        ({"dale": {"a": [1, -1]}}, "1, -1 or 0 for each of its 5 inputs"),
        ({"dale": {"a": [1, -1, 1, 2, 0]}}, "1, -1 or 0 for each of its 5 inputs"),
    ],
)
def test_what_cannot_be_kept_is_refused(kept, message):
    with pytest.raises(ValueError, match=message):
        Wiring([LayerShape("a", 4, 5), LayerShape("b", 3, 4)], [9, 4], constraints=wb.Constraints(**kept))


def test_given_connections_must_keep_them():
    layer, positions = [LayerShape("a", 3, 4)], torch.tensor([0, 1, 7])
    weights = torch.tensor([0.5, -0.25, 0.1])
    with pytest.raises(WiringError, match=r"max_fan_out \(=1\) must hold, but input neuron 0 has 2"):
        Wiring.from_connections(layer, positions, weights, constraints=wb.Constraints(max_fan_out=1))
    with pytest.raises(WiringError, match="must have the sign of its input neuron, 1 have not"):
        Wiring.from_connections(layer, positions, weights, constraints=wb.Constraints(dale=1.0))
    Wiring.from_connections(layer, positions, weights, constraints=wb.Constraints(max_fan_out=2)).check()


def test_check_finds_what_is_broken():
    kept = wb.Constraints(max_fan_in=2, max_fan_out=3, dale=0.5)

    def broken(change):
        wiring = Wiring([LayerShape("a", 6, 8)], [12], seed=1, constraints=kept)
        wiring.check()
        change(wiring)
        with pytest.raises(WiringError) as error:
            wiring.check()
        return str(error.value)

    def crowd(wiring):
        wiring.fan_caps[0] = 1

    def crowd_out(wiring):
        wiring.fan_caps[1] = 1

    def flip(wiring):
        wiring.packed_rows[3] ^= -(1 << 31)

    def impossible(wiring):
        wiring.fan_caps[0] = 99

    assert "max_fan_in (=1) must hold, but output neuron 0 has 2" in broken(crowd)
    assert "max_fan_out (=1) must hold" in broken(crowd_out)
    assert "sign of its input neuron" in broken(flip)
    assert "room for" in broken(impossible)
    assert "signs must be bound" in broken(lambda w: setattr(w, "sign_bound", False))


def test_a_file_is_held_to_the_same_rules(tmp_path):
    kept = wb.Constraints(max_fan_in=3, max_fan_out=3, dale=0.5)

    def layer(**options):
        settings = {"constraints": kept, "seed": 1, **options}
        wiring = Wiring([LayerShape("linear", 6, 8)], [15], **settings)
        return wb.SparseLinear(8, 6, bias=False, wiring=wiring)

    mine = layer()
    wb.save(tmp_path / "kept.safetensors", model=mine)
    other = layer(seed=7)
    wb.load(tmp_path / "kept.safetensors", model=other)
    assert torch.equal(other.wiring.column_signs, mine.wiring.column_signs)
    assert torch.equal(other.dense_weight(), mine.dense_weight())
    with pytest.raises(wb.CheckpointError, match="caps on fan-in and fan-out must be those of the model here"):
        wb.load(tmp_path / "kept.safetensors", model=layer(constraints=wb.Constraints(4, 3, 0.5)))
    with pytest.raises(wb.CheckpointError, match=r"wiring.fan_caps, wiring.column_signs unknown here"):
        wb.load(tmp_path / "kept.safetensors", model=layer(constraints=None))
    with pytest.raises(wb.CheckpointError, match=r"wiring.column_signs unknown here"):
        wb.load(tmp_path / "kept.safetensors", model=layer(constraints=wb.Constraints(3, 3)))
    state = mine.wiring.state_dict()
    for name, value, message in (
        ("fan_caps", torch.tensor([[1], [3]]), "max_fan_in"),
        ("fan_caps", torch.tensor([[-1], [1 << 62]]), "room for"),
        ("column_signs", -state["column_signs"], "sign of its input neuron"),
        ("column_signs", torch.full_like(state["column_signs"], -128), "must be 1, -1 or 0"),
        ("column_signs", torch.full_like(state["column_signs"], 5), "must be 1, -1 or 0"),
    ):
        arrays = dict(state)
        assert wiring_fault(mine.wiring.geometry, arrays) is None
        assert message in wiring_fault(mine.wiring.geometry, {**arrays, name: value})


def test_allocation_knows_what_layers_have_room_for():
    layers = [LayerShape("a", 10, 100), LayerShape("b", 10, 10)]
    kept = wb.Constraints(max_fan_in=4)
    room = [kept.capacity(layer) for layer in layers]
    assert room == [40, 40]
    shapes = [(layer.n_out, layer.n_in) for layer in layers]
    counts = allocate(["a", "b"], shapes, "uniform", None, 70, capacities=room)
    assert counts == [40, 30]
    Wiring(layers, counts, constraints=kept).check()
    with pytest.raises(ValueError, match=r"budget \(=81\) must be in \[1, 80\], what the layers have room for"):
        allocate(["a", "b"], shapes, "uniform", None, 81, capacities=room)


def test_large_layers_stay_linear():
    """200,000 neurons on each side with exact caps: nothing as large as the matrix, and done in moments."""
    n = 200_000
    kept = wb.Constraints(max_fan_in=2, max_fan_out=2)
    wiring = Wiring([LayerShape("a", n, n)], [2 * n - 1000], seed=0, constraints=kept)
    wiring.check()
    wiring.rewire_(torch.arange(0, wiring.budget, 50), [], 1, None)
    wiring.check()


def test_mappings_are_divided_among_wirings():
    layers = [LayerShape("a", 4, 5), LayerShape("b", 3, 4)]
    kept = wb.Constraints(max_fan_in={"a": 2}, dale={"b": 1.0})
    first, second = (Wiring([layer], [3], constraints=kept.for_layers([layer])) for layer in layers)
    assert (first.fan_caps.tolist(), first.column_signs) == ([[2], [4]], None)
    assert (second.fan_caps, second.column_signs.tolist()) == (None, [1, 1, 1, 1])
