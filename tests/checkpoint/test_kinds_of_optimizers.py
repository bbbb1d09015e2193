"""What optimisers keep comes back, whoever made them and whatever was set while they trained."""

import pytest
import torch
from checkpoint_helpers import X, build, rewrite, take_steps
from torch import nn

import wirebound as wb


def _plain(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(10, 6), nn.Tanh(), nn.Linear(6, 3))


def _lbfgs(model):
    return torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")


def _muon(model):
    return torch.optim.Muon([p for p in model.parameters() if p.dim() == 2], lr=0.1)


OTHERS = {
    "adafactor": lambda model: torch.optim.Adafactor(model.parameters(), lr=0.1),
    "lbfgs": _lbfgs,
    "muon": _muon,
    "fused": lambda model: torch.optim.Adam(model.parameters(), fused=True),
    "foreach": lambda model: torch.optim.NAdam(model.parameters(), foreach=True),
    "lr is a tensor": lambda model: torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01)),
    "named parameters": lambda model: torch.optim.Adamax(model.named_parameters()),
    "groups": lambda model: torch.optim.AdamW(
        [{"params": [p], "amsgrad": p.dim() > 1, "lr": 0.1 / (1 + i)} for i, p in enumerate(model.parameters())]
    ),
}


def _train(model, optimizer, steps=2):
    def closure():
        optimizer.zero_grad()
        loss = model(X).square().sum()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


@pytest.mark.parametrize("name", OTHERS)
def test_other_optimisers_of_torch(tmp_path, name):
    model, other = _plain(), _plain(1)
    optimizer, resumed = OTHERS[name](model), OTHERS[name](other)
    _train(model, optimizer)
    wb.save(tmp_path / "c", model=model, optimizer=optimizer)
    wb.load(tmp_path / "c", model=other, optimizer=resumed)
    _train(model, optimizer)
    _train(other, resumed)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    _train(other, resumed, 1)
    wb.load(tmp_path / "c", model=other, optimizer=resumed)  # into an optimiser that has state of its own


def test_sparse_gradients(tmp_path):
    made = [nn.Embedding(5, 3, sparse=True) for _ in range(2)]
    optimizers = [torch.optim.SparseAdam(each.parameters()) for each in made]
    made[0](torch.tensor([1, 3])).sum().backward()
    optimizers[0].step()
    wb.save(tmp_path / "c", model=made[0], optimizer=optimizers[0])
    wb.load(tmp_path / "c", model=made[1], optimizer=optimizers[1])
    assert torch.equal(optimizers[0].state[made[0].weight]["exp_avg"], optimizers[1].state[made[1].weight]["exp_avg"])


@pytest.mark.parametrize(
    ("optimizer", "key", "later"),
    [("momentum", "momentum", 0.0), ("sgd", "momentum", 0.5), ("amsgrad", "amsgrad", False), ("rmsprop", "momentum", 0)],
)
def test_settings_that_changed_during_training(tmp_path, optimizer, key, later):
    """State that is kept but not needed now, or that is made with the next step."""
    made, resumed = build(optimizer=optimizer), build(optimizer=optimizer, seed=1)
    take_steps(*made, 2)
    made[0].optimizer.param_groups[0][key] = later
    wb.save(tmp_path / "c", method=made[0], scheduler=made[1])
    wb.load(tmp_path / "c", method=resumed[0], scheduler=resumed[1])
    for each in (made, resumed):
        take_steps(*each, 2)
    assert torch.equal(made[0].model[0].wiring.theta, resumed[0].model[0].wiring.theta)


def test_another_default_type(tmp_path):
    """torch makes its counts of the default type of the day."""
    made, resumed = build(optimizer="nadam"), build(optimizer="nadam", seed=1)
    torch.set_default_dtype(torch.float64)
    try:
        nn.functional.mse_loss(made[0].model(X), torch.zeros(60, 4, dtype=torch.float32)).backward()
        made[0].step()
        wb.save(tmp_path / "c", method=made[0])
    finally:
        torch.set_default_dtype(torch.float32)
    wb.load(tmp_path / "c", method=resumed[0])
    assert resumed[0].optimizer.state[resumed[0].model[0].wiring.theta]["step"].dtype == torch.float64


class Nested(torch.optim.Optimizer):
    """Somebody's optimiser: state in dicts and lists, of several types."""

    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["moments"] = {"first": torch.zeros_like(parameter), "list": [torch.zeros_like(parameter), 0]}
                    state.update(step=torch.zeros(1), seen=torch.zeros(parameter.shape, dtype=torch.bool), best=float("inf"))
                state["moments"]["first"].lerp_(parameter.grad, 0.1)
                state["step"] += 1
                parameter.sub_(state["moments"]["first"], alpha=group["lr"])


def _fixed(seed):
    made = build("fixed", seed=seed)[0]
    return wb.Fixed(made.model, Nested(made.model.parameters()))


def test_an_optimiser_of_somebody_else(tmp_path):
    made, resumed = _fixed(0), _fixed(1)
    for each, steps in ((made, 3), (resumed, 1)):
        for _ in range(steps):
            each.model(X).square().sum().backward()
            each.step()
            each.zero_grad()
    wb.save(tmp_path / "c", method=made)
    wb.load(tmp_path / "c", method=resumed)
    wb.load(tmp_path / "c", method=_fixed(2))  # one that has no state yet
    name = next(p for p in range(5) if resumed.optimizer.param_groups[0]["params"][p] is resumed.model[0].wiring.theta)
    place = f"optimizer/state/{name}"
    good = (tmp_path / "c").read_bytes()
    for key, lie in {
        "moments/first": torch.ones(400),
        "moments/list/0": torch.ones(3),
        "step": torch.ones(45, dtype=torch.bfloat16),
        "seen": torch.full((45,), float("nan")),
    }.items():
        (tmp_path / "c").write_bytes(good)
        rewrite(tmp_path / "c", lambda tensors, document, key=key, lie=lie: tensors.update({f"{place}/{key}": lie}))
        before = [p.clone() for p in resumed.model.parameters()]
        for each in (resumed, _fixed(2)):
            with pytest.raises(wb.CheckpointError, match=f"optimiser state {name}/{key} must"):
                wb.load(tmp_path / "c", method=each)
        assert all(torch.equal(a, b) for a, b in zip(before, resumed.model.parameters(), strict=True))


def test_state_that_could_not_be_loaded_is_not_written(tmp_path):
    made = build(optimizer="adadelta")
    take_steps(*made, 2)
    wb.save(tmp_path / "c", method=made[0])
    good = (tmp_path / "c").read_bytes()
    state = made[0].optimizer.state[made[0].model[0].wiring.theta]
    state["acc_delta"][3] = float("inf")
    with pytest.raises(wb.CheckpointError, match=r"optimiser state \d+/acc_delta must be finite: nothing was written"):
        wb.save(tmp_path / "c", method=made[0])
    state["acc_delta"] = torch.zeros(7)
    with pytest.raises(wb.CheckpointError, match=r"acc_delta must be float32 .* nothing was written"):
        wb.save(tmp_path / "c", method=made[0])
    made[0].steps = -3
    state["acc_delta"] = torch.zeros(made[0].model[0].wiring.budget)
    with pytest.raises(wb.CheckpointError, match=r"steps \(=-3\) must be .* nothing was written"):
        wb.save(tmp_path / "c", method=made[0])
    assert (tmp_path / "c").read_bytes() == good
