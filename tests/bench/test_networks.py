"""Whole networks, small: answers are compared with dense twins, and a section without its data says so."""

import dataclasses

import pytest
import torch

import wirebound as wb
from wirebound_lab.bench import networks, step, without_compiler
from wirebound_lab.bench.contenders import LinearWorkload
from wirebound_lab.bench.contest import Settings, WrongAnswerError
from wirebound_lab.data import status
from wirebound_lab.tasks.phonemes import sparse_model

TINY = Settings(seconds=0.001, rounds=2, quick=True, kind="avx2")
FOUND = {one.name for one in status() if one.state == "found"}


def test_encoder_layers():
    layers = networks.encoder_layers(16, 2, 6, 2, 0.2)
    assert list(layers) == ["dense", "torch CSR", "ours"]
    (wiring,) = wb.wirings(layers["ours"].model)
    found = networks.race_with_dense("tiny", {name: layer.step for name, layer in layers.items()}, TINY)
    assert found.numbers["dense ÷ ours"] > 0
    wiring.check()


def test_a_wrong_twin_is_found():
    model = wb.sparsify(torch.nn.Linear(8, 6), 0.5)
    twin = wb.to_dense(model)
    twin.weight.data *= 1.01
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(WrongAnswerError, match="loss differs"):
        networks.require_twin(model, twin, lambda network: network(x).square().sum(), lambda: [twin.weight.grad])


def test_the_twin_of_the_speech_network():
    model = sparse_model(6, 5, 4, 0.3, None, seed=0)
    x, lengths = torch.randn(3, 7, 6, generator=torch.Generator().manual_seed(0)), torch.tensor([7, 4, 2])
    ours, dense = (network(x, lengths) for network in (model, networks.speech_twin(model)))
    for y, expected, length in zip(ours, dense, lengths, strict=True):
        assert torch.allclose(y[:length], expected[:length], atol=1e-6)


def test_sections_without_data_say_so(monkeypatch, tmp_path):
    monkeypatch.setenv("WIREBOUND_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for measure, name in ((networks.measure_cifar, "cifar10"), (networks.measure_speech, "speech"), (step.measure, "mnist")):
        section = measure(TINY)
        assert not section.tables
        assert not section.goals
        assert section.notes[0].startswith("Omitted")
        assert name in section.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["cifar10", "speech"])
def test_real_data(monkeypatch, task):
    if task not in FOUND:
        pytest.skip(f"{task} was not found")
    monkeypatch.setattr(networks, "QUICK_CIFAR", {**networks.CIFAR, "images": 8, "test_images": 4, "batch_size": 4})
    monkeypatch.setattr(networks, "QUICK_SPEECH", {**networks.SPEECH, "utterances": 2, "test_utterances": 1, "batch_size": 2})
    section = {"cifar10": networks.measure_cifar, "speech": networks.measure_speech}[task](TINY)
    assert len(section.goals) == {"cifar10": 4 * min(2, len(section.tables[0].measurements)), "speech": 1}[task]


def test_without_a_compiler():
    settings = dataclasses.replace(TINY, seconds=0.002)
    measurement = without_compiler.measure_layer(LinearWorkload(40, 30, 0.1, 4), settings)
    assert set(measurement.times) == {"dense", "torch CSR", "ours"}
    assert measurement.numbers[without_compiler.CSR.name] > 0
