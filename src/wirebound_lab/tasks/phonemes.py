"""Framewise phone classification by a bidirectional LSTM inside a budget of connections (the paper's TIMIT experiment).

Claim (TIMIT): a dense network with ℓ2 has 28.3 % frame error; DEEP R is slightly better near 10 % connectivity, and better
than fixed connectivity at every level. Defaults and the reported figure (``test_error_at_best_validation``) are the paper's.

Differs from the paper in that one budget spans both directions and the output, whose matrices start at the paper's
multiples of the connectivity, and in that the validation part is made of whole speakers.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.checkpoint import CheckpointError
from wirebound.engine.modules import Batch
from wirebound.methods import METHODS, Setting
from wirebound.methods.declaration import AUTO
from wirebound.nn import SparseLinear, SparseLSTM
from wirebound.nn.nonzero import NonzeroLinear, lstm_by_nonzero, lstm_is_sparse
from wirebound.wiring import LayerShape, Wiring, allocate
from wirebound_lab.data import load_sequences
from wirebound_lab.data.sequences import NO_LABEL
from wirebound_lab.data.sequences import Batch as Utterances
from wirebound_lab.run.config import ConfigError, RunConfig
from wirebound_lab.run.models import build_method, build_optimizer
from wirebound_lab.tasks.task import SEED, Figures, Record, Task, paper_rates

DATA = ("speech", "timit", "spoken")
_EVALUATION_BATCH = 32  # sorted by length: larger ones have more padding, and are no faster
_SAME_CONNECTIVITY = 1.05  # so much denser counts as equal
# Connectivity of each matrix in units of the global one (appendix A): inputs, recurrent, output.
MULTIPLIERS = {"ih": 1.8, "hh": 0.6, "readout": 6.0}


class TwoWayLSTM(nn.Module):
    """A dense bidirectional LSTM that takes padded batches as ``SparseLSTM`` does, in two one-way passes: torch's packed
    sequences would do the same, several times slower on a CPU. Where most weights are 0, see ``nn/nonzero.py``."""

    def __init__(self, inputs: int, hidden: int, zeros_learn: bool = True) -> None:
        super().__init__()
        self.ahead = nn.LSTM(inputs, hidden, batch_first=True)
        self.back = nn.LSTM(inputs, hidden, batch_first=True)
        self.zeros_learn = zeros_learn

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, None]:
        """[B, T, 2 · hidden]; what stands beyond a sequence's length is without meaning."""
        ways = (self.ahead, self.back)
        if all(lstm_is_sparse(lstm, self.zeros_learn) for lstm in ways):
            frames = x.transpose(0, 1).contiguous()
            found = [lstm_by_nonzero(frames, lstm, lengths, lstm is self.back, self.zeros_learn) for lstm in ways]
            return torch.cat(found, dim=2).transpose(0, 1), None
        back = reverse(self.back(reverse(x, lengths))[0], lengths)
        return torch.cat([self.ahead(x)[0], back], dim=2), None


def reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """Each sequence of x [B, T, F] from its end to its start; padding stays where it is."""
    return cast(Tensor, _Reverse.apply(x, lengths))


class _Reverse(torch.autograd.Function):
    """Whole frames are copied, forward and backward, from the order in which torch's LSTM has them in memory ([T, B, F])
    and back to it: ``gather`` copies number by number, and its gradient adds up where nothing meets."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: Tensor) -> Tensor:
        batch, steps, features = x.shape
        every = torch.arange(steps)
        ctx.places = torch.where(every < lengths[:, None], lengths[:, None] - 1 - every, every)
        frames = (ctx.places * batch + torch.arange(batch)[:, None]).flatten()
        return x.transpose(0, 1).reshape(-1, features).index_select(0, frames).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (dy,) = gradients
        batch, steps, features = dy.shape
        frames = (ctx.places + steps * torch.arange(batch)[:, None]).t().flatten()
        return dy.reshape(-1, features).index_select(0, frames).view(steps, batch, features).transpose(0, 1), None


class PhonemeNet(nn.Module):
    """Logits of every frame, [B, T, classes], from inputs [B, T, features] and lengths [B]."""

    def __init__(self, lstm: nn.Module, readout: nn.Module) -> None:
        super().__init__()
        self.lstm, self.readout = lstm, readout

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        hidden, _ = self.lstm(x, lengths=lengths)
        logits: Tensor = self.readout(hidden)
        return logits


def frame_loss(logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy over the frames that have a label."""
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=NO_LABEL, reduction=reduction)


@torch.no_grad()
def frame_errors(model: nn.Module, batch: Utterances) -> tuple[int, int, float]:
    """(wrong frames, frames that have a label, their summed cross-entropy)."""
    logits, y = model(batch.x, batch.lengths).flatten(0, 1), batch.y.flatten()
    labelled = y != NO_LABEL
    wrong = int((logits.argmax(1)[labelled] != y[labelled]).sum())
    loss = F.cross_entropy(logits, y, ignore_index=NO_LABEL, reduction="sum").item()
    return wrong, int(labelled.sum()), loss


def dense_model(features: int, hidden: int, classes: int, seed: int, zeros_learn: bool = True) -> PhonemeNet:
    """All connections, with the paper's first weights N(0,1)/√n_in; biases start at 0, as in the sparse one."""
    readout = (nn.Linear if zeros_learn else NonzeroLinear)(2 * hidden, classes)
    model = PhonemeNet(TwoWayLSTM(features, hidden, zeros_learn), readout)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.zero_()
            else:
                parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
    return model


def shares_of(connectivity: float) -> list[float]:
    """Connectivity of the five matrices; where the paper's multiple is more than all, others take the rest."""
    return [min(1.0, MULTIPLIERS[kind] * connectivity) for kind in ("ih", "hh", "ih", "hh", "readout")]


def sparse_model(
    features: int, hidden: int, classes: int, connectivity: float | None, budget: int | None, seed: int
) -> PhonemeNet:
    """One budget for all five matrices, shared out at the start as the paper does."""
    inputs = (("ih_l0", features), ("hh_l0", hidden), ("ih_l0_reverse", features), ("hh_l0_reverse", hidden))
    shapes = [LayerShape(f"lstm.weight_{name}", 4 * hidden, n_in) for name, n_in in inputs]
    shapes.append(LayerShape("readout", classes, 2 * hidden))
    possible = sum(shape.possible for shape in shapes)
    p0 = connectivity if connectivity is not None else (budget or 0) / possible
    shares = shares_of(max(p0, 1e-9))  # one of 0 or less is left for allocate to refuse, which says why
    sizes = [(shape.n_out, shape.n_in) for shape in shapes]
    counts = allocate([shape.name for shape in shapes], sizes, shares, connectivity, budget)
    wiring = Wiring(shapes, counts, seed=seed)
    lstm = SparseLSTM(features, hidden, batch_first=True, bidirectional=True, wiring=wiring, layer_id=0)
    readout = SparseLinear(2 * hidden, classes, wiring=wiring, layer_id=len(shapes) - 1, owner=False)
    return PhonemeNet(lstm, readout)


class Tested(NamedTuple):
    """An epoch after which the test set was looked at; the least of several has the least validation error."""

    validation: float
    active: int
    epoch: int
    error: float


class Phonemes(Task):
    """Training on padded batches of utterances, the error on held-out speakers, and that of the test."""

    name = "phonemes"
    title = "phones of speech, frame by frame, with a bidirectional LSTM (figure 2)"
    headline = "test error {test_error_at_best_validation:.2%} at the least validation error (epoch {best_epoch})"
    settings = (
        SEED,
        Setting("data", "str", "speech", "data set", choices=DATA),
        Setting("partial", "bool", False, "accept a part of TIMIT"),
        Setting("validation", "float", 0.05, "share of the training speakers held out to pick the epoch", above=0, below=1),
        Setting("utterances", "int | None", None, "train on so many utterances an epoch only, for trying out", least=1),
        Setting("test_utterances", "int | None", None, "evaluate on so many utterances of each part only, for trying out", least=1),
        Setting("hidden", "list[int]", [200], "cells of the LSTM in each direction", least=1),
        Setting("l1", "float", 0.03, "α, the ℓ1 pull", least=0, words=(AUTO,)),
        Setting("noise", "float", 0.0, "g of deep-r, the noise in units of η; soft-deep-r has α/3", least=0),
    )
    defaults: ClassVar[Mapping[str, Any]] = {"epochs": 40, "batch_size": 32, "optimizer": "adam", "lr": 0.01, "eps": 1e-4}
    large_batches = True

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.tested: list[Tested] = []
        data = load_sequences(config.data, config.data_path, partial=config.partial)
        self.data = data.split_validation(config.validation, config.seed)
        self.input_shape = (self.data.features,)
        utterances = len(self.data.part("train"))
        self.per_epoch = -(-min(utterances, config.utterances or utterances) // config.batch_size)
        sizes = (self.data.features, config.hidden[0], self.data.classes)
        given, kind = (config.connectivity, config.budget, config.seed), METHODS[config.method]
        model = dense_model(*sizes, config.seed, kind.zeros_learn) if kind.plain else sparse_model(*sizes, *given)
        shares = shares_of(config.connectivity or 1.0)
        l1, noise = getattr(config, "l1", 0.0), [getattr(config, "noise", 0.0)] * len(shares)
        rates = paper_rates(config, l1 if l1 == AUTO else [l1] * len(shares), noise)
        self.method = build_method(config, model, build_optimizer(config, model), self.per_epoch, allocation=shares, **rates)

    @classmethod
    def check(cls, config: RunConfig) -> None:
        super().check(config)
        if len(config.hidden) != 1:
            raise ConfigError(f"hidden (={config.hidden}) must be one number: the LSTM has one layer")

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        order = self.data.order("train", self.config.seed, epoch)[: self.config.utterances]
        found = self.data.batches(self.config.batch_size, order)
        return (Batch((x, lengths), y) for x, lengths, y in itertools.islice(found, start, None))

    def loss(self, outputs: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        return frame_loss(outputs, y, reduction)

    def count(self, y: Tensor) -> int:
        return int((y != NO_LABEL).sum())

    def measure(self, epoch: int, figures: Figures, record: Record) -> dict[str, float | None]:
        """Validation after every epoch; the test set where its error may come to count, and at the end."""
        if epoch > 1 and not self.tested:
            raise CheckpointError("the checkpoint is of an earlier version and names no tested epochs: begin the run again")
        validation, _ = self._evaluate("validation")
        # Soft-DEEP R is judged by the most connections that it ever had, whatever it has now.
        active = 0 if self.method.counts == "highest" else sum(self.method.layer_active())
        figures["validation_error"] = validation
        beaten = any(known.validation <= validation and known.active <= active for known in self.tested)
        if tested := not beaten or epoch == self.config.epochs:
            error, loss = self._evaluate("test")
            figures |= {"test_accuracy": 1 - error, "test_error": error, "test_loss": loss}
            self.tested.append(Tested(validation, active, epoch, error))
        # A network of an earlier epoch that had more connections is another one.
        best = min(known for known in self.tested if known.active <= _SAME_CONNECTIVITY * active)
        figures |= {"best_epoch": best.epoch, "best_validation_error": best.validation}
        figures |= {"test_error_at_best_validation": best.error}
        names = ("test_error", "test_accuracy", "test_loss")
        return {"validation_error": validation, **{name: figures[name] if tested else None for name in names}}

    def state(self) -> dict[str, Any]:
        return {"tested": [list(known) for known in self.tested]}

    def load_state(self, stored: dict[str, Any]) -> None:
        try:
            self.tested = [Tested(*known) for known in stored["tested"]]
        except (LookupError, TypeError) as error:
            raise CheckpointError(f"what was kept of the tested epochs cannot be read: {error}") from error

    def _evaluate(self, part: str) -> tuple[float, float]:
        """(share of wrong frames, mean cross-entropy) on a part."""
        model = self.method.model.eval()
        utterances = self.data.part(part)[: self.config.test_utterances]
        counts = [frame_errors(model, batch) for batch in self.data.batches(_EVALUATION_BATCH, utterances)]
        wrong, frames, loss = (sum(column) for column in zip(*counts, strict=True))
        return wrong / max(1, frames), loss / max(1, frames)

    def facts(self, connectivity: float) -> dict[str, Any]:
        utterances = {part: len(self.data.part(part)) for part in ("train", "validation", "test")}
        return {"data": self.config.data, "evaluated_on": "test", "utterances": utterances, "classes": self.data.classes}
