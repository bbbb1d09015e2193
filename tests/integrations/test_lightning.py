"""Lightning's own Trainer, on digits-sized data: exactly K after every step, and a resumed run repeats the bits."""

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import wirebound as wb
from wirebound.integrations.lightning import Rewiring
from wirebound.methods import attached

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore:The .* does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*isinstance.*:FutureWarning"),
]


class Net(pl.LightningModule):
    def __init__(self, own_method=False):
        super().__init__()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 3))
        self.net = wb.sparsify(net, connectivity=0.25, seed=2)
        self.own_method = own_method
        self.actives = []
        self.losses = []

    def training_step(self, batch, number):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.losses.append(loss.item())
        return loss

    def on_train_batch_end(self, outputs, batch, number):
        (wiring,) = wb.wirings(self)
        wiring.check()
        self.actives.append(wiring.active)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.02)
        if self.own_method:
            wb.DeepR(self, optimizer, l1=0.05)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)]


def _loader():
    x = torch.randn(48, 12, generator=torch.Generator().manual_seed(3))
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8)


def _trainer(tmp_path, callbacks, epochs, **settings):
    return pl.Trainer(
        max_epochs=epochs, callbacks=callbacks, accelerator="cpu", default_root_dir=tmp_path, logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, **settings,
    )  # fmt: skip


def _same(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def test_fit_keeps_the_budget_after_every_step_and_learns(tmp_path):
    net, rewiring = Net(), Rewiring(wb.DeepR, l1=0.01)
    trainer = _trainer(tmp_path, [rewiring], 15)
    trainer.fit(net, _loader())
    budget = wb.wirings(net)[0].budget
    assert net.actives == [budget] * 90
    assert rewiring.method.steps == 90
    assert sum(net.losses[-6:]) < 0.8 * sum(net.losses[:6])
    assert trainer.callback_metrics["connections/active"] == budget


def test_gradients_are_accumulated_and_clipped_by_lightning(tmp_path):
    net = Net(own_method=True)
    trainer = _trainer(tmp_path, [], 2, accumulate_grad_batches=3, gradient_clip_val=0.1)
    trainer.fit(net, _loader())
    assert attached(trainer.optimizers[0]).steps == 4


@pytest.mark.parametrize("own_method", [False, True])
def test_a_resumed_fit_repeats_the_bits(tmp_path, own_method):
    def callbacks():
        return [] if own_method else [Rewiring(wb.DeepR, l1=0.05)]

    whole = Net(own_method)
    _trainer(tmp_path, callbacks(), 4).fit(whole, _loader())

    first = Net(own_method)
    trainer = _trainer(tmp_path, callbacks(), 2)
    trainer.fit(first, _loader())
    trainer.save_checkpoint(tmp_path / "c.ckpt")
    generator = torch.get_rng_state()  # of dropout; Lightning leaves it to the user

    second = Net(own_method)
    torch.set_rng_state(generator)
    trainer = _trainer(tmp_path, callbacks(), 4)
    trainer.fit(second, _loader(), ckpt_path=tmp_path / "c.ckpt")
    assert attached(trainer.optimizers[0]).steps == 24
    assert _same(whole, second)
    assert not _same(first, second)
    assert first.losses + second.losses == whole.losses


def test_what_it_cannot_do_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has a DeepR attached already"):
        _trainer(tmp_path, [Rewiring(wb.DeepR)], 1).fit(Net(own_method=True), _loader())
    with pytest.raises(ValueError, match="needs a method"):
        _trainer(tmp_path, [Rewiring()], 1).fit(Net(), _loader())


def test_the_callback_logs_a_method_of_the_module(tmp_path):
    net, rewiring = Net(own_method=True), Rewiring()
    trainer = _trainer(tmp_path, [rewiring], 1)
    trainer.fit(net, _loader())
    assert rewiring.method.steps == 6
    assert trainer.callback_metrics["connections/active"] == wb.wirings(net)[0].budget


def test_manual_optimisation_steps_by_the_optimiser(tmp_path):
    class Manual(Net):
        def training_step(self, batch, number):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(F.cross_entropy(self.net(batch[0]), batch[1]))
            optimizer.step()

    net = Manual(own_method=True)
    net.automatic_optimization = False
    trainer = _trainer(tmp_path, [], 2)
    trainer.fit(net, _loader())
    assert attached(trainer.optimizers[0]).steps == 12
    assert net.actives == [wb.wirings(net)[0].budget] * 12
