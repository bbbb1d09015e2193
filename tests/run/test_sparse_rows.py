"""Training on sparse rows: the same steps by both engines, with exactly K connections after every one."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import wirebound as wb
from wirebound.engine.fused import FusedEngine
from wirebound.engine.modules import ModuleEngine
from wirebound.engine.rows import SparseRows, first_layer, note_columns, start_where_inputs_are
from wirebound.nn.perceptron import perceptron

ROWS, WIDTH, CLASSES = 60, 50, 4


def table(seed=0, density=0.15, width=WIDTH):
    rng = np.random.default_rng(seed)
    return sp.random(ROWS, width, density, format="csr", random_state=rng, dtype=np.float32), rng.integers(0, CLASSES, ROWS)


def model_and_method(hidden=(9,), budget=120, width=WIDTH, optimizer="adam", **settings):
    model = wb.sparsify(perceptron([width, *hidden, CLASSES], device="meta"), budget=budget, scope="layer", seed=3)
    made = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer](model.parameters(), lr=0.02)
    return model, wb.DeepR(model, made, **{"l1": 0.1, "noise": 0.0, "newborn_moments": "own", **settings})


def train(engine, steps=6, batch=13):
    passes = range(steps * batch // ROWS + 1)
    order = torch.cat([torch.randperm(ROWS, generator=torch.Generator().manual_seed(i)) for i in passes])[: steps * batch]
    return list(engine.epoch(order, [0.02] * steps, batch, 2))


@pytest.mark.parametrize("hidden", [(), (9,)])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_both_engines_take_the_same_steps(hidden, optimizer):
    X, y = table()
    thetas, positions = [], []
    for kind in (FusedEngine, ModuleEngine):
        model, method = model_and_method(hidden, optimizer=optimizer)
        windows = train(kind(model, method, SparseRows.of(X), torch.from_numpy(y)))
        assert all(window.active_min == window.active_max == 120 for window in windows)
        assert sum(sum(window.newborns) for window in windows) > 0
        for wiring in wb.wirings(model):
            wiring.check()
        thetas.append(torch.cat([wiring.theta.detach() for wiring in wb.wirings(model)]))
        positions.append(torch.cat([wiring.positions() for wiring in wb.wirings(model)]))
    assert torch.equal(*positions)
    torch.testing.assert_close(*thetas, atol=1e-5, rtol=1e-4)


def test_the_automatic_l1_is_the_same_by_both_engines():
    X, y = table(density=0.05)
    found = []
    for kind in (FusedEngine, ModuleEngine):
        model, method = model_and_method(l1="auto", newborn_moments="layer")
        start_where_inputs_are(first_layer(model), SparseRows.of(X))
        train(kind(model, method, SparseRows.of(X), torch.from_numpy(y)), steps=70)
        found.append(torch.tensor([price.alpha for price in method.turnover.prices], dtype=torch.float64))
    assert (found[0] > 0).any()
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-9)


def test_with_all_connections_judged_it_is_the_dense_training():
    X, y = table()
    found = []
    for x in (SparseRows.of(X), torch.from_numpy(X.toarray())):
        model, method = model_and_method(lazy="off")
        train(FusedEngine(model, method, x, torch.from_numpy(y)))
        found.append([wiring.theta.detach().clone() for wiring in wb.wirings(model)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_connections_stay_where_inputs_are():
    X, y = table(width=2000, density=0.01)
    model, method = model_and_method((), budget=200, width=2000)
    rows = SparseRows.of(X)
    start_where_inputs_are(first_layer(model), rows)
    for shift in range(3):
        windows = train(FusedEngine(model, method, rows, torch.from_numpy((y + shift) % CLASSES)))
        assert sum(sum(window.newborns) for window in windows) > 0
        assert set((wb.wirings(model)[0].positions() // CLASSES).tolist()) <= set(X.indices.tolist())


def test_first_wirings_follow_the_inputs():
    X, _ = table(width=3000, density=0.004)
    X = sp.csr_matrix(sp.hstack([np.ones((ROWS, 1), dtype=np.float32), X]))  # the first column is always there
    model, _ = model_and_method((), budget=150, width=3001)
    wiring = wb.wirings(model)[0]
    before = wiring.theta.detach().sort().values
    start_where_inputs_are(first_layer(model), SparseRows.of(X))
    wiring.check()
    counts = torch.bincount(wiring.positions() // CLASSES, minlength=3001)
    assert counts[0] == CLASSES
    assert set(torch.nonzero(counts).view(-1).tolist()) <= set(X.indices.tolist())
    torch.testing.assert_close(wiring.theta.detach().sort().values, before)


@pytest.mark.parametrize("budget", [30, 199, 200])
def test_first_wirings_where_there_is_hardly_room(budget):
    X = sp.csr_matrix((np.ones(100, dtype=np.float32), (np.arange(100) % ROWS, np.arange(100) % 50)), shape=(ROWS, 90))
    model, _ = model_and_method((), budget=budget, width=90)
    start_where_inputs_are(first_layer(model), SparseRows.of(X))
    wiring = wb.wirings(model)[0]
    wiring.check()
    assert int((wiring.positions() // CLASSES).max()) < 50


def test_rows_are_checked():
    X, _ = table()
    with pytest.raises(ValueError, match="CSR format"):
        SparseRows.of(X.tocsc())
    for name, value in (("indices", WIDTH), ("indices", -1), ("indptr", 10**6)):
        broken = X.copy()
        getattr(broken, name)[3] = value
        with pytest.raises(ValueError, match="valid CSR matrix"):
            SparseRows.of(broken)


def test_a_batch_is_made_of_the_rows_asked_for():
    X, _ = table()
    X.data[:5] = 0  # a zero that is stored
    rows, chosen = SparseRows.of(X), torch.tensor([7, 3, 3, 59])
    np.testing.assert_array_equal(rows[chosen].to_dense().numpy(), X.toarray()[chosen])
    assert rows.shape == X.shape
    assert rows.occurring().tolist() == np.unique(X.indices).tolist()
    note_columns(None, rows.occurring())  # a dense first layer has no newborns
