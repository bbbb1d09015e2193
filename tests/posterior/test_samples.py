"""Samples along a run: what is kept, that prediction averages, and that files come back or are refused."""

import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound.posterior import Samples, quality


def _model(seed=0):
    layers = (nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 4))
    return wb.sparsify(nn.Sequential(*layers), connectivity=0.3, seed=seed)


def _training(model, l1=0.05):
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=l1, temperature=1e-3)
    generator = torch.Generator().manual_seed(0)

    def step():
        x = torch.randn(20, 12, generator=generator)
        nn.functional.cross_entropy(model(x), x[:, :4].argmax(1)).backward()
        method.step()
        method.zero_grad()

    return step


@pytest.fixture
def run():
    """(model, collector) after 40 steps, one sample in 4 after the first 8."""
    model = _model()
    step, collector = _training(model), wb.SampleCollector(model, every=4, burn_in=8)
    for _ in range(40):
        step()
        collector.offer()
    return model, collector


def test_burn_in_and_interval(run):
    _, collector = run
    assert collector.samples.steps == [12, 16, 20, 24, 28, 32, 36, 40]


def test_samples_stay_as_they_were_while_the_wiring_moves(run):
    model, collector = run
    states = collector.samples.states
    assert any(not torch.equal(states[0]["0.wiring.packed_rows"], s["0.wiring.packed_rows"]) for s in states[1:])
    for sample in collector.samples.models():
        for wiring in wb.wirings(sample):
            wiring.check()
    # The model in training is another object, and the last sample is what it is now.
    last = list(collector.samples.models())[-1]
    assert last is not model
    x = torch.randn(5, 12)
    torch.testing.assert_close(last(x), model(x))


def test_the_prediction_is_the_mean_of_the_probabilities(run):
    _, collector = run
    x = torch.randn(7, 12)
    each = torch.stack([model(x).softmax(1).detach() for model in collector.samples.models()])
    torch.testing.assert_close(collector.samples.predict(x, batch_size=3), each.mean(0))
    one, three = collector.samples.predictions(x, (1, 3))
    torch.testing.assert_close(one, each[-1])
    torch.testing.assert_close(three, each[-3:].mean(0))
    torch.testing.assert_close(collector.samples.last(3).predict(x), three)
    # An average is never less likely than its parts are on average (Jensen).
    y = torch.arange(7) % 4
    parts = [quality(p, y).nll for p in each]
    assert quality(each.mean(0), y).nll < sum(parts) / len(parts)
    # Averaging probabilities is not averaging weights or logits.
    assert not torch.allclose(collector.samples.predict(x), each.log().mean(0).softmax(1), atol=1e-4)


def test_a_sample_takes_no_more_than_its_connections():
    """784-300-100-10 at 1 %: a dense sample would take a megabyte."""
    sizes = ((784, 300), (300, 100), (100, 10))
    model = wb.sparsify(nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in sizes)), connectivity=0.01)
    samples = Samples(model)
    samples.add(model, 0)
    budget = sum(w.budget for w in wb.wirings(model))
    assert samples.nbytes <= 8 * budget + 8 * (784 + 300 + 100 + 1) + 200


def test_at_most_so_many_are_kept_evenly_spread():
    model = _model()
    step, collector = _training(model), wb.SampleCollector(model, keep=6)
    for number in range(1, 41):
        step()
        collector.offer()
        assert len(collector.samples) <= 6
        gaps = {b - a for a, b in zip(collector.samples.steps, collector.samples.steps[1:], strict=False)}
        assert len(gaps) <= 1
        assert collector.samples.steps[0] in gaps or number == 1
    assert collector.samples.steps == [8, 16, 24, 32, 40]


def test_save_and_load(run, tmp_path):
    _, collector = run
    path = tmp_path / "samples.safetensors"
    collector.samples.save(path)
    found = Samples.load(path, _model(seed=7))
    assert found.steps == collector.samples.steps
    x = torch.randn(5, 12)
    assert torch.equal(found.predict(x), collector.samples.predict(x))


def test_files_of_other_models_and_broken_ones_are_refused(run, tmp_path):
    _, collector = run
    path = tmp_path / "samples.safetensors"
    collector.samples.save(path)
    other = wb.sparsify(nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 4)), connectivity=0.5)
    with pytest.raises(wb.CheckpointError, match="of another model"):
        Samples.load(path, other)
    bad = collector.samples
    bad.states[2]["0.wiring.packed_rows"][0] = 1 << 20  # kernels would write outside of their memory
    bad.save(path)
    with pytest.raises(wb.CheckpointError, match=r"sample '000002'.*inside of its layer"):
        Samples.load(path, _model())
    wb.save(path, model=_model())
    with pytest.raises(wb.CheckpointError, match="must hold posterior samples"):
        Samples.load(path, _model())


def test_what_is_refused():
    model = _model()
    with pytest.raises(ValueError, match="no samples yet"):
        Samples(model).predict(torch.randn(2, 12))
    with pytest.raises(ValueError, match=r"every \(=0\) must be >= 1"):
        wb.SampleCollector(model, every=0)
    with pytest.raises(ValueError, match=r"keep \(=1\) must be >= 2"):
        wb.SampleCollector(model, keep=1)
    with pytest.raises(ValueError, match="count"):
        Samples(model).last(1)
