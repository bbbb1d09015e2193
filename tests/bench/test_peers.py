"""The comparison with peers runs with what torch alone offers, and counts what it says it counts."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

import wirebound as wb

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("deep_rewire", "sparsimony", "sparseprop"):  # wherever the tests run, the same contenders
        monkeypatch.setitem(sys.modules, name, None)
    module = importlib.import_module("peers")
    draw = torch.Generator().manual_seed(0)

    def batches(size, count=20):
        return [
            (torch.rand(size, 784, generator=draw), torch.randint(0, 10, (size,), generator=draw)) for _ in range(count)
        ]

    monkeypatch.setattr(module, "batches", batches)
    monkeypatch.setattr(module, "STEPS", 20)
    monkeypatch.setattr(module, "timed", lambda kind, size, seconds: dict.fromkeys(
        [c.name for c in module.contenders(kind)[0]], 1e-3))
    yield module
    for name in ("peers", "peer_contenders"):
        sys.modules.pop(name, None)


def test_tables_and_what_they_count(peers):
    result = peers.measure(quick=True)
    assert len(result["missing"]) == 3
    sgd, adam = result["census sgd"], result["census adam"]
    assert sgd["torch, dense"]["bytes"] == 2 * 4 * 266_200
    assert adam["torch, dense"]["bytes"] == 4 * 4 * 266_200 + 3 * 4
    ours = sgd["wirebound (DEEP R)"]
    assert (ours["least"], ours["most"]) == (2662, 2662)
    assert 12 * 2662 < ours["bytes"] < 18 * 2662
    newborns = result["newborns"]["wirebound (DEEP R)"]
    assert newborns["born"] > 0
    assert newborns["got a gradient"] > 0.2 * newborns["born"]  # the rest ends at units that are off or lead nowhere
    assert 0 < newborns["outlived that step"] <= newborns["got a gradient"]
    text = peers.markdown(result)
    assert "| wirebound (DEEP R) | 2,662 |" in text
    assert "not installed" in text


def test_places_of_newborns_follow_their_connections(peers):
    contender = peers.ours("sgd")
    (wiring,) = wb.wirings(contender.model)
    chosen = torch.zeros(wiring.budget, dtype=torch.bool)
    chosen[5] = True
    assert peers._places(contender, wiring.theta, chosen).tolist() == [wiring.positions()[5].item()]
