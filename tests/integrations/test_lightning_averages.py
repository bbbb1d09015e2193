"""Lightning's callbacks that average weights: refused beside a method that rewires, or found out at the next evaluation."""

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EMAWeightAveraging, StochasticWeightAveraging, WeightAveraging
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import wirebound as wb
from wirebound import WiringError
from wirebound.integrations.lightning import Rewiring

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore:The .* does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*isinstance.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Swapping scheduler"),
]
AVERAGES = {
    "swa": lambda: StochasticWeightAveraging(swa_lrs=0.02, swa_epoch_start=1, device=None),
    "mean": lambda: WeightAveraging(use_buffers=False),
    "mean with buffers": lambda: WeightAveraging(),
    "ema": lambda: EMAWeightAveraging(decay=0.9, use_buffers=False),
    "ema with buffers": lambda: EMAWeightAveraging(decay=0.9),
}


class Net(pl.LightningModule):
    def __init__(self, method):
        super().__init__()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))
        self.net = wb.sparsify(net, connectivity=0.25, seed=2)
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        self.optimizer, self.rewiring = optimizer, method(self, optimizer) if method else None

    def training_step(self, batch, number):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, number):
        self.log("loss", F.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return self.optimizer


def fit(module, callbacks, tmp_path):
    x = torch.randn(48, 12, generator=torch.Generator().manual_seed(3))
    loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8)
    trainer = pl.Trainer(
        max_epochs=3, callbacks=callbacks, accelerator="cpu", default_root_dir=tmp_path, logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(module, loader, loader)
    return x


def lively(module, optimizer):
    return wb.DeepR(module, optimizer, l1=0.01)


@pytest.mark.parametrize("name", AVERAGES)
def test_beside_our_callback_they_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"averages weights place by place.*wb\.WeightAverage"):
        fit(Net(None), [Rewiring(wb.DeepR, l1=0.01), AVERAGES[name]()], tmp_path)


@pytest.mark.parametrize("name", AVERAGES)
def test_beside_an_optimiser_that_rewires_they_are_found_out(tmp_path, name):
    module = Net(lively)
    with pytest.raises(WiringError, match=r"wb\.WeightAverage"):
        x = fit(module, [AVERAGES[name]()], tmp_path)
        module.net.eval()  # stochastic weight averaging hands its mean over at the very end
        with torch.no_grad():
            module.net(x)


@pytest.mark.parametrize("name", ["swa", "mean", "ema"])
def test_where_connections_stay_they_work(tmp_path, name):
    module = Net(wb.Fixed)
    x = fit(module, [AVERAGES[name]()], tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(module.net(x), wb.to_dense(module.net)(x))


def test_whole_numbers_that_were_averaged_are_found_out(tmp_path):
    with pytest.raises(WiringError, match="use_buffers=True"):
        fit(Net(wb.Fixed), [AVERAGES["ema with buffers"]()], tmp_path)


class Averaged(pl.Callback):
    """How a user averages instead."""

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        self.average.update()

    def on_fit_start(self, trainer, module):
        self.average = wb.WeightAverage(module.rewiring, decay=0.9)

    def on_fit_end(self, trainer, module):
        self.averaged = self.average.model()


def test_our_average_in_a_callback(tmp_path):
    module, callback = Net(lively), Averaged()
    x = fit(module, [callback], tmp_path)
    wb.wirings(callback.averaged)[0].check()
    with torch.no_grad():
        assert not torch.equal(callback.averaged.net(x), module.net(x))
