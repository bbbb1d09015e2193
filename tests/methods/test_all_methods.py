"""The same questions to every method: budget, seed, state, newborns, learning, drift and noise."""

import itertools

import numpy as np
import pytest
import torch
from method_table import NAMES, SPARSE_KINDS, TABLE, X, Y, assert_same, build, plain_model, possible_kinds, take_steps
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.methods import METHODS
from wirebound.ops import philox

QUESTIONS = [(name, kind) for name in NAMES for kind in possible_kinds(name)]
BORN = [name for name in NAMES if TABLE[name].born]
WALKS = [name for name in NAMES if TABLE[name].drift]
STATES = ("sgd", "adam")


def test_every_method_has_a_line():
    ours = {name for name, kind in METHODS.items() if kind.__module__.startswith("wirebound.")}
    assert ours <= set(TABLE), "a new method needs a line in method_table.TABLE"


def line_of(method):
    return TABLE[next(name for name, kind in METHODS.items() if kind is type(method))]


def _matrices(method):
    """The weights of each counted matrix, dense, whatever the method keeps them in."""
    if line_of(method).plain:
        counted = {shape.name for shape in method.shapes}
        return [p.detach().flatten(1) for name, p in method.model.named_parameters() if name in counted]
    return [wiring.layer_dense(i) for wiring in wb.wirings(method.model) for i in range(len(wiring.layers))]


@pytest.mark.parametrize("optimizer", STATES)
@pytest.mark.parametrize(("name", "kind"), QUESTIONS)
def test_what_is_promised_is_kept_after_every_step(name, kind, optimizer):
    method = build(name, kind, optimizer)
    budget = sum(w.budget for w in wb.wirings(method.model))
    for _ in range(12):
        (info,) = take_steps(method, 1)
        for wiring in wb.wirings(method.model):
            wiring.check()
        if TABLE[name].promise == "exactly":
            assert info.active == info.budget == budget
        else:
            assert info.budget is None
        if TABLE[name].promise == "at most":
            assert info.active <= budget
        assert info.active == sum(info.layer_active) == sum(layer.active for layer in info.layers)
        assert list(info.layer_active) == method.layer_active()
        weights = _matrices(method)
        for matrix, shape, active in zip(weights, info.shapes, info.layer_active, strict=True):
            assert tuple(matrix.shape) == (shape.n_out, shape.n_in)
            assert int(torch.count_nonzero(matrix)) <= active <= shape.possible
            assert torch.isfinite(matrix).all()


@pytest.mark.parametrize("name", NAMES)
def test_something_happens_in_these_steps(name):
    """The other questions would be easy for a method that leaves everything as it is."""
    method = build(name)
    before = [m.clone() for m in _matrices(method)]
    infos = take_steps(method, 12)
    assert any(not torch.equal(a, b) for a, b in zip(before, _matrices(method), strict=True))
    assert (sum(info.rewired for info in infos) > 0) == TABLE[name].born
    if name in ("constant-rate", "soft-deep-r", "l1-shrinkage", "pruning"):
        assert len({info.active for info in infos}) > 1


@pytest.mark.parametrize("optimizer", STATES)
@pytest.mark.parametrize(("name", "kind"), QUESTIONS)
def test_same_seed_same_run(name, kind, optimizer):
    one, two = build(name, kind, optimizer, seed=3), build(name, kind, optimizer, seed=3)
    take_steps(one, 8)
    torch.rand(7)  # nothing comes from torch's own generator
    take_steps(two, 8)
    assert_same(one, two)


@pytest.mark.parametrize("name", BORN)
def test_another_seed_another_run(name):
    one, two = build(name, seed=3), build(name, seed=4)
    assert any(not torch.equal(a, b) for a, b in zip(_matrices(one), _matrices(two), strict=True))


@pytest.mark.parametrize("optimizer", STATES)
@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("name", NAMES)
def test_both_implementations_take_the_same_steps(name, scope, optimizer):
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    runs = []
    for implementation in ("reference", "native"):
        with ops.use(implementation):
            method = build(name, optimizer=optimizer, scope=scope)
            infos = take_steps(method, 6)
        runs.append((infos, _matrices(method)))
    assert [i.active for i in runs[0][0]] == [i.active for i in runs[1][0]]
    for a, b in zip(runs[0][1], runs[1][1], strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "rmsprop"])
@pytest.mark.parametrize(("name", "kind"), QUESTIONS)
def test_five_steps_save_five_steps_is_ten_steps(name, kind, optimizer, tmp_path):
    through, first, second = (build(name, kind, optimizer) for _ in range(3))
    infos = take_steps(through, 10)
    take_steps(first, 5)
    wb.save(tmp_path / "state.safetensors", method=first)
    found = wb.load(tmp_path / "state.safetensors", method=second)
    assert found.steps == second.steps == 5
    assert_same(first, second)
    assert take_steps(second, 5)[-1] == infos[-1]
    assert_same(through, second)


@pytest.mark.parametrize("name", NAMES)
def test_state_dicts_alone_resume(name):
    """Without our files: the three state dicts, as torch users keep them."""
    through, first, second = (build(name, optimizer="adam") for _ in range(3))
    take_steps(through, 10)
    take_steps(first, 5)
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    take_steps(second, 5)
    assert_same(through, second)


@pytest.mark.parametrize("name", BORN)
def test_optimiser_state_of_newborns_is_clean(name):
    method = build(name, optimizer="adam")
    seen = 0
    for _ in range(12):
        before = [m.clone() for m in _active(method)]
        take_steps(method, 1)
        born = [now & ~then for then, now in zip(before, _active(method), strict=True)]
        for moment in ("exp_avg", "exp_avg_sq"):
            for mask, values in zip(born, _states(method, moment), strict=True):
                assert not values[mask].any(), moment
        seen += sum(int(mask.sum()) for mask in born)
    assert seen > 0


def _active(method):
    """Which connections are active, as dense masks."""
    if hasattr(method, "theta"):
        return [(row >= 0).view(s.n_out, s.n_in) for row, s in zip(method.theta, method.shapes, strict=True)]
    masks = []
    for wiring in wb.wirings(method.model):
        alive = torch.ones(wiring.budget, dtype=torch.bool) if wiring.alive is None else wiring.alive
        masks += _scattered(wiring, alive)
    return masks


def _scattered(wiring, values):
    """K values of a wiring as dense matrices, one for each layer."""
    row = torch.zeros(wiring.possible, dtype=values.dtype)
    row[wiring.positions()] = values
    edges = itertools.pairwise(wiring.geometry.position_start)
    return [row[a:b].view(s.n_in, s.n_out).t() for (a, b), s in zip(edges, wiring.layers, strict=True)]


def _states(method, name):
    state = method.optimizer.state
    if line_of(method).plain:
        return [state[m.theta][name].flatten(1) for m in method.matrices]
    return [dense for w in wb.wirings(method.model) for dense in _scattered(w, state[w.theta][name])]


@pytest.mark.parametrize(
    ("name", "kind", "scope"),
    [(name, kind, scope) for name, kind in QUESTIONS for scope in ("global", "layer") if scope == "global" or not TABLE[name].plain],
)
def test_learns_a_tiny_task(name, kind, scope):
    gentle = {"l1": 1e-4, "temperature": 1e-10} if TABLE[name].drift else {}
    if name == "pruning":
        gentle = {"total_steps": 90}
    method = build(name, kind, "adam", scope=scope, **gentle)
    take_steps(method, 90)
    assert (method.model(X).argmax(1) == Y).float().mean() > 0.9


@pytest.mark.parametrize("name", WALKS)
def test_no_noise_is_drawn_at_temperature_0(name, monkeypatch):
    methods = {temperature: build(name, temperature=temperature) for temperature in (0.0, 1e-5)}
    drawn = []
    normals = philox.normals
    counted = lambda *a, **k: drawn.append(a) or normals(*a, **k)  # noqa: E731
    monkeypatch.setattr(philox, "normals", counted)
    monkeypatch.setattr(ops.Backend, "normals", staticmethod(counted))
    with ops.use("reference"):
        take_steps(methods[0.0], 3)
        assert not drawn
        take_steps(methods[1e-5], 1)
        assert drawn


def _linear(name, **settings):
    """One 12 × 16 matrix, half of it active, and a step with no gradient."""
    torch.manual_seed(0)
    model = nn.Linear(16, 12, bias=False)
    if not TABLE[name].plain:
        model = wb.sparsify(model, connectivity=0.5)
    method = METHODS[name](model, torch.optim.SGD(model.parameters(), lr=0.1), **settings)
    before = _matrices(method)[0].clone().double().numpy()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    method.step()
    return before, _matrices(method)[0].double().numpy(), method


def _still(name):
    """Settings under which nobody is born."""
    return {"soft-deep-r": {"connectivity": 0.5, "theta_min": -10.0}, "constant-rate": {"rate": 0.0}}.get(name, {})


@pytest.mark.parametrize("name", [*WALKS, "l1-shrinkage"])
def test_drift_alone_is_right(name):
    """w ← sign(w) (|w| − ηα), and what would cross zero is no more."""
    alone = {"l1": 0.2} if name == "l1-shrinkage" else {"l1": 0.2, "temperature": 0.0, **_still(name)}
    before, after, _ = _linear(name, **alone)
    expected = np.sign(before) * np.maximum(np.abs(before) - 0.1 * 0.2, 0)
    assert np.allclose(after, expected, atol=1e-7)
    assert ((before != 0) & (after == 0)).any()


@pytest.mark.parametrize("name", WALKS)
def test_noise_alone_is_right(name):
    """|w| of the survivors has moved by √(2ηT) ν, ν standard normal."""
    before, after, _ = _linear(name, l1=0.0, temperature=1e-5, **_still(name))
    both = (before != 0) & (after != 0)
    nu = (np.abs(after) - np.abs(before))[both] / np.sqrt(2 * 0.1 * 1e-5)
    assert (np.sign(after) == np.sign(before))[both].all()
    assert both.sum() > 60
    assert abs(nu.mean()) < 4 / np.sqrt(len(nu))
    assert abs(nu.std() - 1) < 4 / np.sqrt(2 * len(nu))


@pytest.mark.parametrize("name", NAMES)
def test_ledger_counts_what_is_kept(name):
    method = build(name, optimizer="adam")
    take_steps(method, 2)
    entries = {entry.part: entry for entry in wb.ledger(method.model, method).entries}
    state = method.state_dict()
    for key, part in {"theta": "θ of all possible connections", "kept": "which are kept"}.items():
        if key in state:
            assert entries[part].bytes == 4 * sum(shape.possible for shape in method.shapes)
            assert "dense" in entries[part].note
    if name == "constant-rate":
        assert entries["which places are in use"].bytes == sum(w.budget for w in wb.wirings(method.model))
    if TABLE[name].plain:
        assert entries["dense parameters"].bytes == 4 * sum(p.numel() for p in method.model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_the_wrong_model_is_refused(name):
    other = plain_model() if not TABLE[name].plain else wb.sparsify(plain_model(), connectivity=0.5)
    with pytest.raises(ValueError, match=r"needs a (plain|sparse) model"):
        METHODS[name](other, torch.optim.SGD(other.parameters(), lr=0.1))


def test_kinds_wait_for_their_layers():
    """Sparse models are asked about a kind as soon as its layer exists."""
    for name in NAMES:
        for kind, layer in SPARSE_KINDS.items():
            assert ((name, kind) in QUESTIONS) == (TABLE[name].plain or hasattr(wb, layer))
