"""``sparsify`` on models as people build them."""

import copy
import io

import pytest
import torch
from torch import nn

import wirebound as wb


def _mlp(device=None):
    return nn.Sequential(
        nn.Linear(20, 30, device=device), nn.ReLU(), nn.Linear(30, 40, device=device), nn.Linear(40, 5, device=device)
    )


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.ModuleDict({"first": nn.Linear(8, 16), "norm": nn.BatchNorm1d(16)})
        self.shared = nn.Linear(16, 16)
        self.again = self.shared
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.body["norm"](self.body["first"](x)).relu()
        return self.head(self.again(self.shared(x).relu()))


@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("allocation", ["uniform", "erdos-renyi", "equal", "paper"])
def test_budget_is_exact_and_forward_is_that_of_the_dense_model(implementation, scope, allocation):
    model = wb.sparsify(_mlp(), connectivity=0.1, scope=scope, allocation=allocation, seed=3)
    found = wb.wirings(model)
    assert sum(w.budget for w in found) == round(0.1 * (600 + 1200 + 200))
    assert len(found) == (1 if scope == "global" else 3)
    for wiring in found:
        wiring.check()
    x = torch.randn(7, 20)
    assert torch.allclose(model(x), wb.to_dense(model)(x), atol=1e-6)


def test_nested_and_shared_modules(implementation):
    model = wb.sparsify(Nested(), connectivity=0.5)
    assert model.shared is model.again
    assert isinstance(model.body["first"], wb.SparseLinear)
    assert isinstance(model.body["norm"], nn.BatchNorm1d)
    model.eval()
    x = torch.randn(4, 8)
    dense = wb.to_dense(model)
    assert dense.shared is dense.again
    assert torch.allclose(model(x), dense(x), atol=1e-6)
    assert sum(p.numel() for p in model.parameters()) == round(0.5 * (128 + 256 + 48)) + 16 + 16 + 3 + 32


@pytest.mark.parametrize(
    "exclude", ["head", ["he*"], lambda name, module: name == "head", [lambda name, module: module.out_features == 3]]
)
def test_exclude(exclude):
    model = wb.sparsify(Nested(), connectivity=0.5, exclude=exclude)
    assert type(model.head) is nn.Linear
    assert isinstance(model.shared, wb.SparseLinear)


def test_include():
    model = wb.sparsify(Nested(), budget=10, include="head")
    assert isinstance(model.head, wb.SparseLinear)
    assert type(model.shared) is nn.Linear


def test_a_single_layer():
    assert isinstance(wb.sparsify(nn.Linear(4, 4), budget=3), wb.SparseLinear)


def test_meta_models_never_exist_dense():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(10**6, 10**6), nn.LayerNorm(10**6), nn.Linear(10**6, 10))
    model = wb.sparsify(model, budget=5000)
    assert not any(p.is_meta for p in model.parameters())
    assert model(torch.randn(1, 10**6)).shape == (1, 10)
    assert wb.wirings(model)[0].nbytes < 17_000_000


def test_meta_without_a_way_to_start_is_refused():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.linear = nn.Linear(3, 3)

    with torch.device("meta"):
        model = Odd()
    with pytest.raises(ValueError, match="has no reset_parameters"):
        wb.sparsify(model, budget=2)


@pytest.mark.parametrize("keep", ["largest", "random"])
def test_dense_weights_can_be_kept(keep):
    model = _mlp()
    before = copy.deepcopy(model)
    model = wb.sparsify(model, connectivity=0.2, keep=keep, allocation="uniform")
    for sparse, dense in zip(model, before, strict=True):
        if isinstance(dense, nn.Linear):
            kept = sparse.dense_weight()
            mask = kept != 0
            assert torch.equal(kept[mask], dense.weight.detach()[mask])
            assert torch.equal(sparse.bias, dense.bias)
            if keep == "largest":
                assert dense.weight.abs()[mask].min() >= dense.weight.abs()[~mask].max()


def test_state_dict_round_trip():
    model, other = (wb.sparsify(_mlp(), connectivity=0.1, seed=s) for s in (1, 2))
    other.load_state_dict(model.state_dict())
    x = torch.randn(3, 20)
    assert torch.equal(model(x), other(x))
    names = list(dict(model.named_parameters()))
    assert names == ["0.bias", "0.wiring.theta", "2.bias", "3.bias"]


def test_deepcopy_pickle_and_dtype():
    model = wb.sparsify(_mlp(), connectivity=0.1)
    x = torch.randn(3, 20)
    model(x).sum().backward()
    twin = copy.deepcopy(model)
    assert twin[2].wiring is twin[0].wiring
    assert twin[0].wiring is not model[0].wiring
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert loaded[2].wiring is loaded[0].wiring
    assert torch.equal(loaded(x), model(x))
    double = twin.double()
    assert torch.allclose(double(x.double()), model(x).double(), atol=1e-5)


def test_gradients_accumulate_over_backwards(implementation):
    model = wb.sparsify(_mlp(), connectivity=0.3)
    x = torch.randn(8, 20)
    model(x).sum().backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x[:4]).sum().backward()
    model(x[4:]).sum().backward()
    for part, p in zip(whole, model.parameters(), strict=True):
        assert torch.allclose(part, p.grad, atol=1e-5)


def test_backward_after_a_step_is_refused(implementation):
    """The graph holds the old weights: torch's own error, not a wrong gradient."""
    model = wb.sparsify(_mlp(), connectivity=0.3)
    rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1))
    stale = model(torch.randn(2, 20)).sum()
    model(torch.randn(2, 20)).sum().backward()
    rewiring.step()
    with pytest.raises(RuntimeError, match="modified"):
        stale.backward()


def test_gradient_of_a_layer_that_the_loss_does_not_reach():
    model = wb.sparsify(_mlp(), connectivity=0.3)
    model[0](torch.randn(2, 20)).sum().backward()
    grad = wb.wirings(model)[0].theta.grad
    bounds = wb.wirings(model)[0].bounds
    assert grad[: bounds[1]].abs().sum() > 0
    assert grad[bounds[1] :].eq(0).all()


def test_wrong_input():
    with pytest.raises(ValueError, match="nothing to sparsify"):
        wb.sparsify(nn.ReLU(), connectivity=0.1)
    with pytest.raises(ValueError, match="nothing to sparsify"):
        wb.sparsify(_mlp(), connectivity=0.1, exclude="*")
    with pytest.raises(ValueError, match=r"scope \(='both'\)"):
        wb.sparsify(_mlp(), connectivity=0.1, scope="both")
    with pytest.raises(ValueError, match=r"keep \(='best'\)"):
        wb.sparsify(_mlp(), connectivity=0.1, keep="best")
    with pytest.raises(ValueError, match="meta"):
        wb.sparsify(_mlp("meta"), connectivity=0.1, keep="largest")
    tied = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match="tied"):
        wb.sparsify(tied, connectivity=0.1)


def test_a_failed_call_leaves_the_model_as_it_was():
    model = _mlp()
    with pytest.raises(ValueError, match="budget"):
        wb.sparsify(model, budget=10**9)
    assert all(type(m) in (nn.Linear, nn.ReLU) for m in model)


def test_autocast_computes_in_the_precision_of_the_parameters():
    model = wb.sparsify(_mlp(), connectivity=0.3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(torch.randn(2, 20).bfloat16())
    assert y.dtype == torch.bfloat16
