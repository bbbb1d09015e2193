"""First wirings by correlation: the same number of connections, between inputs that vary together."""

import pytest
import torch
from torch import nn

import wirebound as wb


def _model(connectivity=0.1, **options):
    return wb.sparsify(nn.Sequential(nn.Flatten(), nn.Linear(60, 40), nn.ReLU(), nn.Linear(40, 5)), connectivity, **options)


def _data(rows=300):
    """Six groups of ten inputs that vary together; the last ten inputs never vary."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 6, generator=generator).repeat_interleave(10, 1)
    x = x + 0.1 * torch.randn(rows, 60, generator=generator)
    x[:, 50:] = 0.0
    return x


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_units_see_inputs_that_vary_together(scope):
    model = _model(scope=scope)
    first = model[1].wiring
    counts, theta = first.layer_active, first.theta.detach().clone()
    before, other = model[1].dense_weight(), model[3].dense_weight()
    wb.wire_by_correlation_(model, _data().view(-1, 6, 10))
    first.check()
    after = model[1].dense_weight()
    assert first.layer_active == counts
    assert torch.equal(first.theta, theta)
    assert torch.equal(model[3].dense_weight(), other)
    assert torch.equal((before != 0).sum(1), (after != 0).sum(1))  # each unit has as many inputs as before
    groups = (after != 0).view(40, 6, 10).sum(2)
    assert not groups[:, 5].any()
    assert (groups.max(1).values.float() / groups.sum(1).clamp(min=1)).mean() > 0.75
    signs = first.negative_signs(first.positions())
    assert torch.equal(signs, first.packed_rows < 0)


def test_it_follows_the_seed_and_training_goes_on():
    one, two, third = _model(seed=1), _model(seed=1), _model(seed=2)
    for model in (one, two, third):
        wb.wire_by_correlation_(model, _data())
    assert torch.equal(one[1].dense_weight(), two[1].dense_weight())
    assert not torch.equal(one[1].dense_weight(), third[1].dense_weight())
    method = wb.DeepR(one, torch.optim.SGD(one.parameters(), lr=0.1), l1=0.01)
    for _ in range(3):
        one(_data()).square().mean().backward()
        info = method.step()
        method.zero_grad()
        one[1].wiring.check()
        assert info.active == info.budget
    with pytest.raises(RuntimeError, match="trained by DeepR already"):
        wb.wire_by_correlation_(one, _data())


def test_dense_and_blocked_layers_and_data_without_any_variance(monkeypatch):
    monkeypatch.setattr("wirebound.nn.correlated.BLOCK", 130)  # two units at a time
    for x in (_data(), torch.zeros(4, 60)):
        model = _model(0.9)
        wb.wire_by_correlation_(model, x, power=2.0)
        model[1].wiring.check()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="x has 12 features, but the first sparse linear layer takes 60"):
        wb.wire_by_correlation_(_model(), torch.randn(5, 12))
    with pytest.raises(ValueError, match=r"power \(=-1\)"):
        wb.wire_by_correlation_(_model(), _data(), power=-1)
    with pytest.raises(ValueError, match="has no SparseLinear"):
        wb.wire_by_correlation_(nn.Linear(60, 5), _data())
    with pytest.raises(ValueError, match="neurons have caps"):
        wb.wire_by_correlation_(_model(constraints=wb.Constraints(max_fan_in=20)), _data())


def test_deeper_layers_go_by_what_they_see():
    torch.manual_seed(0)
    model = wb.sparsify(nn.Sequential(nn.Linear(60, 40), nn.ReLU(), nn.Dropout(0.5), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 5)), 0.3)
    before = [layer.dense_weight() for layer in (model[0], model[3], model[5])]
    wb.wire_by_correlation_(model, _data(), power=[8.0, 8.0])
    after = [layer.dense_weight() for layer in (model[0], model[3], model[5])]
    wb.wirings(model)[0].check()
    assert model.training
    assert not torch.equal(before[1], after[1])
    assert torch.equal(before[2], after[2])
    seen = model[:2](_data())
    correlation = torch.corrcoef(seen.t()).nan_to_num().abs()

    def likeness(weight):
        """The mean correlation of the inputs that a unit has."""
        wired = (weight != 0).float()
        return ((wired @ correlation * wired).sum(1) / wired.sum(1).clamp(min=1) ** 2).mean()

    assert likeness(after[1]) > 1.5 * likeness(before[1])
    with pytest.raises(ValueError, match="power has 4 numbers, but the model has 3 sparse linear layers"):
        wb.wire_by_correlation_(_model_of_three(), _data(), power=[1, 1, 1, 1])


def _model_of_three():
    return wb.sparsify(nn.Sequential(nn.Linear(60, 9), nn.Linear(9, 9), nn.Linear(9, 5)), 0.5)
