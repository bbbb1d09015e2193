"""Steps that judge only connections which a gradient reached, and newborns among inputs that are there."""

import copy
import itertools

import pytest
import torch

import wirebound as wb
from wirebound import ops
from wirebound.methods import occurring

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=0.05, amsgrad=True),
}


def _model(seed=0, n_in=80, budget=120):
    torch.manual_seed(seed)
    dense = torch.nn.Sequential(torch.nn.Linear(n_in, 10), torch.nn.Tanh(), torch.nn.Linear(10, 3))
    return wb.sparsify(dense, budget=budget, seed=seed)


def _batch(step, n_in=80, present=None, batch=6):
    """Rows with inputs in some of the columns below ``present`` only."""
    generator = torch.Generator().manual_seed(step)
    x = torch.zeros(batch, n_in)
    x[:, : present or n_in] = torch.randn(batch, present or n_in, generator=generator)
    return x * (torch.rand(batch, n_in, generator=generator) < 0.15)


def _train(model, method, steps, sparse=True, first=1, present=None):
    for step in range(first, first + steps):
        x = _batch(step, present=present)
        method.zero_grad()
        torch.nn.functional.cross_entropy(model(x.to_sparse_csr() if sparse else x), torch.arange(6) % 3).backward()
        yield x
        method.step()
        for wiring in wb.wirings(model):
            wiring.check()
            assert wiring.active == wiring.budget


def _numbers(model, optimizer):
    found = [tensor.detach().clone() for tensor in model.state_dict().values()]
    return found + [t.clone() for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_who_has_no_gradient_stands_still(implementation, kind):
    layer = wb.SparseLinear(40, 6, budget=60, seed=1)
    optimizer = OPTIMIZERS[kind](layer.parameters())
    rewiring = wb.DeepR(layer, optimizer, l1=0.05, noise=0.5, lazy="on")
    wiring = layer.wiring
    for step in range(1, 8):
        x = _batch(step, n_in=40)
        rewiring.zero_grad()
        layer(x).square().sum().backward()
        before, at, grad = wiring.theta.detach().clone(), wiring.positions(), wiring.theta.grad.clone()
        rewiring.step()
        wiring.check()
        still = grad == 0
        assert 0 < still.sum() < 60
        places = ops.backend_of(wiring.theta).find(wiring, at)
        assert (places[still] >= 0).all()
        assert torch.equal(wiring.theta[places[still]], before[still])
        moved = (places >= 0) & ~still
        assert (wiring.theta[places[moved]] != before[moved]).float().mean() > 0.8  # some died and were born again


@pytest.mark.parametrize(("kind", "moments"), [("momentum", "layer"), ("adam", "layer"), ("amsgrad", "own")])
def test_with_gradients_everywhere_it_is_algorithm_1(implementation, kind, moments):
    results = []
    for lazy in ("on", "off"):
        layer = wb.SparseLinear(20, 6, budget=40, seed=1, dtype=torch.float64)
        optimizer = OPTIMIZERS[kind](layer.parameters())
        rewiring = wb.DeepR(layer, optimizer, l1=0.05, noise=0.5, lazy=lazy, newborn_moments=moments)
        for step in range(1, 15):
            rewiring.zero_grad()
            x = torch.randn(5, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
            layer(x).square().sum().backward()
            rewiring.step()
        results.append(_numbers(layer, optimizer))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("newborns", ["share", "uniform"])
@pytest.mark.parametrize("births", ["uniform", "gradient"])
def test_newborns_come_to_columns_that_are_there(implementation, newborns, births):
    model = _model()
    rewiring = wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=0.02), l1=0.1, newborns=newborns, births=births)
    (wiring,) = wb.wirings(model)
    born, before, there = 0, wiring.positions(), torch.empty(0, dtype=torch.int64)
    for x in _train(model, rewiring, 25):  # here the step before this one is over
        now = wiring.positions()
        new = now[~torch.isin(now, before) & (now < 80 * 10)]
        assert torch.isin(new // 10, there).all()
        born += new.numel()
        before, there = now, torch.nonzero((x != 0).any(0)).view(-1)
    assert born > 50


def test_connections_of_closed_units_are_judged_where_their_input_is_there(implementation):
    model = wb.sparsify(torch.nn.Sequential(torch.nn.Linear(30, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)), budget=40, seed=0)
    rewiring = wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=0.1), l1=100.0, noise=0.0)
    (wiring,) = wb.wirings(model)
    with torch.no_grad():
        model[0].bias.fill_(-1000.0)
    x = torch.zeros(2, 30)
    x[:, :15] = 1.0
    before, first = wiring.positions(), wiring.layer_places[0]
    model(x.to_sparse_csr()).square().sum().backward()
    assert not wiring.theta.grad[:first].any()
    rewiring.step()
    wiring.check()
    now = wiring.positions()
    away = before[:first][before[:first] // 4 >= 15]
    assert torch.isin(away, now).sum() >= away.numel() - 1  # but for one in a hundred, rounded up
    assert wiring.theta[: wiring.layer_places[0]][now[: wiring.layer_places[0]] // 4 < 15].max() == 0  # all died


def test_both_implementations_draw_the_same():
    results = []
    for name in ("reference", "native"):
        with ops.use(name):
            model = _model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            rewiring = wb.DeepR(model, optimizer, l1=0.1, noise=1.0)
            list(_train(model, rewiring, 25))
            results.append(wb.wirings(model)[0].positions())
    assert torch.equal(*results)


def test_nobody_stays_where_inputs_never_are(implementation, monkeypatch):
    monkeypatch.setattr(occurring, "PART", 10)
    layer = wb.SparseLinear(80, 10, budget=300, seed=0)
    rewiring = wb.DeepR(layer, torch.optim.SGD(layer.parameters(), lr=0.01), l1=0.0, noise=0.0)
    wiring, waiting = layer.wiring, []
    for step in range(1, 50):
        rewiring.zero_grad()
        layer(_batch(step, present=40).to_sparse_csr()).square().sum().backward()
        rewiring.step()
        wiring.check()
        waiting.append(int((wiring.positions() >= 400).sum()))
    assert waiting[0] >= waiting[1] > 0
    assert max(a - b for a, b in itertools.pairwise(waiting)) <= 30
    assert waiting[-1] == 0


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path, kind):
    runs = []
    for stop in (0, 12):
        model = _model()
        rewiring = wb.DeepR(model, OPTIMIZERS[kind](model.parameters()), l1=0.05)
        list(_train(model, rewiring, stop, present=30))
        if stop:
            kept = {"model": model, "optimizer": rewiring.optimizer, "method": rewiring}
            wb.save(tmp_path / "run.safetensors", **kept)
            model = _model(seed=0)
            rewiring = wb.DeepR(model, OPTIMIZERS[kind](model.parameters()), l1=0.05)
            wb.load(tmp_path / "run.safetensors", model=model, optimizer=rewiring.optimizer, method=rewiring)
        list(_train(model, rewiring, 24 - stop, first=1 + stop, present=30))
        runs.append(_numbers(model, rewiring.optimizer))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_states_that_do_not_fit_are_refused():
    model = _model()
    rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.01))
    list(_train(model, rewiring, 2))
    state = rewiring.state_dict()
    assert [bits.numel() for bits in state["seen"][0]] == [10, 0]
    for wrong in ([], [[torch.zeros(3, dtype=torch.uint8), torch.zeros(0, dtype=torch.uint8)]]):
        with pytest.raises(ValueError, match="seen"):
            rewiring.load_state_dict({**state, "seen": wrong})


def test_other_optimisers_and_devices_are_refused_by_name():
    model = _model()
    with pytest.raises(ValueError, match=r"RMSprop.*lazy"):
        wb.DeepR(model, torch.optim.RMSprop(model.parameters()), lazy="on")
    rewiring = wb.DeepR(model, torch.optim.RMSprop(model.parameters()))
    with pytest.raises(ValueError, match="RMSprop"):
        list(_train(model, rewiring, 1))
    with ops.use("device"):
        model = _model()
        rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=0.1)
        with pytest.raises(NotImplementedError, match="device than the CPU"):
            list(_train(model, rewiring, 5))


def test_off_takes_sparse_rows_by_algorithm_1():
    results = []
    for sparse in (True, False):
        model = _model()
        rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.05), l1=0.05, lazy="off")
        list(_train(model, rewiring, 10, sparse=sparse))
        results.append(wb.wirings(model)[0].positions())
    assert torch.equal(*results)


def test_accumulated_batches_count_together_and_copies_go_on_alone():
    model = _model()
    rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.05), l1=0.3)
    (wiring,) = wb.wirings(model)
    for part in (_batch(1), _batch(2)):
        model(part.to_sparse_csr()).square().sum().backward()
    both = torch.nonzero(((_batch(1) != 0) | (_batch(2) != 0)).any(0)).view(-1)
    assert torch.equal(wiring.seen[0].present(), both)
    twin = copy.deepcopy(rewiring)
    rewiring.step()
    assert wb.wirings(twin.model)[0].seen is not wiring.seen
    wiring.check()
