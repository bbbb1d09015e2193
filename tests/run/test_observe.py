"""What a run records of its wiring: rows, columns, ages, deaths; against plain counting, for every method."""

import itertools
import json
import random
from types import SimpleNamespace

import pytest
import torch

from wirebound.checkpoint import CheckpointError
from wirebound.wiring import LayerShape
from wirebound_lab.run import TrainConfig, train
from wirebound_lab.run.observe import BINS, Observer, age_bins, pool
from wirebound_lab.tasks import perceptron

METHODS = ["deep-r", "fixed", "soft-deep-r", "constant-rate", "l1-shrinkage", "pruning", "set", "rigl"]


def _config(**settings):
    base = {"data": "digits", "connectivity": 0.1, "hidden": [40, 20], "epochs": 3, "lr": 0.5, "l1": 1e-3, "batch_size": 20}
    return TrainConfig(**{**base, "init": "sparse-fan-in", "noise": 1e-3, **settings})


def _records(folder, kind):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def _made_up(positions):
    """A method of two layers whose connections are where ``positions`` says, one entry for each look."""
    shapes = (LayerShape("a", 5, 4), LayerShape("b", 3, 5))
    looks = iter(positions)
    return SimpleNamespace(
        shapes=shapes, layer_positions=lambda: [torch.tensor(layer, dtype=torch.int64) for layer in next(looks)]
    )


def test_pool():
    assert pool(torch.arange(5)) == ([0, 1, 2, 3, 4], 1)
    counts, size = pool(torch.ones(784, dtype=torch.int64))
    assert size == 7
    assert counts == [7] * 112
    counts, size = pool(torch.ones(300, dtype=torch.int64))
    assert (len(counts), size, sum(counts)) == (100, 3, 300)
    counts, size = pool(torch.ones(BINS + 1, dtype=torch.int64))
    assert (counts[-1], size) == (1, 2)
    assert pool(torch.empty(0, dtype=torch.int64)) == ([], 1)


def test_age_bins():
    assert age_bins(0) == [0]
    assert age_bins(16) == [*range(17)]
    assert age_bins(40)[15:] == [15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40]
    assert len(age_bins(1000)) < 80
    for oldest in range(300):
        edges = age_bins(oldest)
        assert edges[0] == 0
        assert edges[-1] <= oldest
        assert all(a < b for a, b in itertools.pairwise(edges))


def test_ages_against_plain_counting():
    draw = random.Random(5)
    sets = [[sorted(draw.sample(range(size), draw.randint(0, size))) for size in (20, 15)] for _ in range(40)]
    observer = Observer(_made_up(sets))
    since = [{}, {}]
    for epoch, layers in enumerate(sets):
        record = observer.look(epoch)["ages"]
        for number, layer in enumerate(layers):
            since[number] = {place: since[number].get(place, epoch) for place in layer}
            ages = [epoch - born for born in since[number].values()]
            expected = [0] * len(record["from"])
            for age in ages:
                expected[max(i for i, edge in enumerate(record["from"]) if edge <= age)] += 1
            assert record["layers"][number] == expected
            assert record["since_start"][number] == sum(born == 0 for born in since[number].values())


@pytest.mark.parametrize(
    ("method", "engine"), [*((method, "auto") for method in METHODS), ("deep-r", "module"), ("fixed", "module")]
)
def test_records_of_every_method(tmp_path, method, engine):
    result = train(_config(method=method, engine=engine), tmp_path / "run")
    layers = result.summary["layers"]
    wiring, epochs, windows = (_records(result.folder, kind) for kind in ("wiring", "epoch", "window"))
    counts = [[layer["initial"] for layer in layers], *(epoch["layer_active"] for epoch in epochs)]
    assert [record["epoch"] for record in wiring] == [0, 1, 2, 3]
    for record, active in zip(wiring, counts, strict=True):
        assert [sum(layer["rows"]) for layer in record["layers"]] == active
        assert [sum(layer["columns"]) for layer in record["layers"]] == active
        assert [sum(ages) for ages in record["ages"]["layers"]] == active
        assert record["inputs"] == record["layers"][0]["columns"], "64 inputs need no pooling"
    assert wiring[0]["ages"] == {"from": [0], "layers": [[n] for n in counts[0]], "since_start": counts[0]}
    if method == "l1-shrinkage":
        assert all(window["deaths"] is None for window in windows), "it does not count who comes back"
        return
    assert all(death >= 0 for window in windows for death in window["deaths"])
    born, died = ([sum(column) for column in zip(*(w[key] for w in windows), strict=True)] for key in ("newborns", "deaths"))
    assert [a + b - d for a, b, d in zip(counts[0], born, died, strict=True)] == counts[-1]
    if method in ("deep-r", "soft-deep-r", "constant-rate", "set", "rigl"):
        assert sum(died) > 0
        assert any(ages[0] for record in wiring[1:] for ages in record["ages"]["layers"]), "some were born"
    if method == "fixed":
        assert wiring[-1]["ages"]["since_start"] == counts[0]


def test_rows_and_columns_of_the_last_epoch(tmp_path):
    result = train(_config(), tmp_path / "run")
    record = _records(result.folder, "wiring")[-1]
    for layer, module in zip(record["layers"], [m for m in result.model.modules() if hasattr(m, "layer_id")], strict=True):
        start, end = module.wiring.bounds[module.layer_id : module.layer_id + 2]
        places = module.wiring.positions()[start:end] - module.wiring.geometry.position_start[module.layer_id]
        flat = torch.zeros(layer["shape"][0] * layer["shape"][1], dtype=torch.int64)  # column by column
        flat[places] = 1
        dense = flat.view(layer["shape"][1], layer["shape"][0]).t()
        assert layer["rows"] == dense.sum(1).tolist()
        assert layer["columns"] == dense.sum(0).tolist()


def test_deaths_step_by_step(tmp_path):
    """Windows of one step: who is gone is counted by hand."""
    seen = []

    def listener(progress):
        if progress.accuracy is None:
            seen.append([set(places.tolist()) for places in method.layer_positions()])

    real = perceptron.build_method

    def building(*args):
        nonlocal method
        method = real(*args)
        seen.append([set(places.tolist()) for places in method.layer_positions()])
        return method

    method = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perceptron, "build_method", building)
        result = train(_config(epochs=1, engine="module"), tmp_path / "run", listener=listener)
    windows = _records(result.folder, "window")
    assert len(windows) == len(seen) - 1
    for window, (before, after) in zip(windows, itertools.pairwise(seen), strict=True):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            # Who dies and is drawn again in the same step counts as born and as died.
            again = window["newborns"][number] - len(new - old)
            assert again >= 0
            assert window["deaths"][number] == len(old - new) + again


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {"positions": []},
        {"positions": [], "births": [torch.zeros(1, dtype=torch.int32)] * 2},
        {"positions": [torch.tensor([3])], "births": [torch.zeros(1, dtype=torch.int32)]},
        {"positions": [torch.tensor([3, 2]), torch.tensor([1])], "births": [torch.zeros(n, dtype=torch.int32) for n in (2, 1)]},
        {"positions": [torch.tensor([20]), torch.tensor([1])], "births": [torch.zeros(1, dtype=torch.int32)] * 2},
        {"positions": [torch.tensor([2]), torch.tensor([1])], "births": [torch.full((1,), 9, dtype=torch.int32)] * 2},
        {"positions": [torch.tensor([2]), torch.tensor([1])], "births": [torch.zeros(1)] * 2},
        {"positions": [torch.tensor([2]), 7], "births": [torch.zeros(1, dtype=torch.int32)] * 2},
    ],
)
def test_a_wrong_state_is_refused(stored):
    with pytest.raises(CheckpointError, match="what was seen of the wiring must be"):
        Observer(_made_up([])).load(stored, epoch=3)


def test_state_goes_round():
    sets = [[[1, 2], [3]], [[2, 7], [3, 4]], [[2, 8], [4]]]
    whole, first = Observer(_made_up(sets)), Observer(_made_up(sets[:2]))
    records = [whole.look(epoch) for epoch in range(3)]
    assert [first.look(0), first.look(1)] == records[:2]
    second = Observer(_made_up(sets[2:]))
    second.load(first.state(), epoch=1)
    assert second.look(2) == records[2]
