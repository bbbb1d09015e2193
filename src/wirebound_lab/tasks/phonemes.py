"""Framewise phone classification by a bidirectional LSTM inside a budget of connections (the paper's TIMIT experiment).

    python -m wirebound_lab.tasks.phonemes --method deep-r --connectivity 0.1 --epochs 40 --seed 0 --out runs/x
    python -m wirebound_lab.tasks.phonemes --method dense --weight-decay 1e-4 --out runs/dense

Claim (TIMIT): a dense network with ℓ2 has 28.3 % frame error; DEEP R is slightly better near 10 % connectivity, and
better than fixed connectivity at every level. Defaults are the paper's settings. The figure that it reports is the
test error at the epoch with the least validation error (``test_error_at_best_validation`` of summary.json).

Differs from the paper in that one budget spans both directions and the output, whose matrices start at the paper's
multiples of the connectivity, and in that the validation part is made of whole speakers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import Tensor, optim

from wirebound_lab.data import load_sequences
from wirebound_lab.data.sequences import Batch
from wirebound_lab.tasks.phoneme_config import PhonemeConfig
from wirebound_lab.tasks.phoneme_model import dense_model, frame_errors, frame_loss, shares_of, sparse_model
from wirebound_lab.tasks.task import Task
from wirebound_lab.tasks.task_config import build_task_method
from wirebound_lab.tasks.task_main import main_of

_EVALUATION_BATCH = 64


class PhonemeTask(Task):
    """Training on padded batches of utterances, the error on held-out speakers, and that of the test."""

    name = "phonemes"

    def __init__(self, config: PhonemeConfig) -> None:
        self.config: PhonemeConfig = config
        data = load_sequences(config.data, config.data_path, partial=config.partial)
        self.data = data.split_validation(config.validation, config.seed)
        self.input_shape = (self.data.features,)
        utterances = len(self.data.part("train"))
        self.per_epoch = math.ceil(min(utterances, config.utterances or utterances) / config.batch_size)
        sizes = (self.data.features, config.hidden, self.data.classes)
        if config.plain:
            model = dense_model(*sizes, seed=config.seed)
        else:
            model = sparse_model(*sizes, config.connectivity, config.budget, config.seed)
        shares = shares_of(config.connectivity or 1.0)
        self.method = build_task_method(
            config,
            model,
            optim.Adam(model.parameters(), lr=config.lr, eps=config.eps, weight_decay=config.weight_decay),
            self.steps,
            l1=[config.l1] * len(shares),
            noise=[math.sqrt(2 * config.temperature / config.lr)] * len(shares),  # η g = √(2ηT)
            allocation=shares,
        )

    def batches(self, epoch: int) -> Iterator[Batch]:
        order = self.data.order("train", self.config.seed, epoch)[: self.config.utterances]
        return self.data.batches(self.config.batch_size, order)

    def loss(self, batch: Batch) -> Tensor:
        return frame_loss(self.method.model(batch.x, batch.lengths), batch.y)

    def measure(self, epoch: int, figures: dict[str, float]) -> dict[str, float | None]:
        """Validation after every epoch; the test set where its error counts: at a new best, and at the end."""
        validation, _ = self._evaluate("validation")
        better = validation < figures.get("best_validation_error", math.inf)
        tested = better or epoch == self.config.epochs
        figures["validation_error"] = validation
        if tested:
            error, loss = self._evaluate("test")
            figures |= {"test_accuracy": 1 - error, "test_error": error, "test_loss": loss}
        if better:
            figures |= {
                "best_epoch": epoch,
                "best_validation_error": validation,
                "test_error_at_best_validation": figures["test_error"],
            }
        names = ("test_error", "test_accuracy", "test_loss")
        return {"validation_error": validation, **{name: figures[name] if tested else None for name in names}}

    def _evaluate(self, part: str) -> tuple[float, float]:
        """(share of wrong frames, mean cross-entropy) on a part."""
        wrong, frames, loss = 0, 0, 0.0
        utterances = self.data.part(part)[: self.config.test_utterances]
        for batch in self.data.batches(_EVALUATION_BATCH, utterances):
            counts = frame_errors(self.method.model, batch)
            wrong, frames, loss = wrong + counts[0], frames + counts[1], loss + counts[2]
        return wrong / max(1, frames), loss / max(1, frames)

    def facts(self) -> dict[str, Any]:
        return {
            "data": self.config.data,
            "evaluated_on": "test",
            "utterances": {part: len(self.data.part(part)) for part in ("train", "validation", "test")},
            "classes": self.data.classes,
        }


_RESULT = (
    "test error {test_error_at_best_validation:.2%} at the least validation error (epoch {best_epoch}),"
    " {test_error:.2%} after the last"
)
main = partial(main_of, "phonemes", __doc__ or "", PhonemeConfig, PhonemeTask, _RESULT)

if __name__ == "__main__":
    raise SystemExit(main())
