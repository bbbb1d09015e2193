"""Close the right quote: a task whose answer is known, for a GPT small enough that its circuit can be read.

The network predicts every next token of a made-up text (``data/quoted.py``); ``emphasis`` is the share of the loss that is on
the closing mark, which is one token in twenty-four and the only one that needs a look back. Accuracy is on held-out texts:
which of the marks has the highest score where the string ends. Guessing gives one in two (quotes) or in three (brackets).
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.engine.modules import Batch
from wirebound.methods import METHODS, Setting
from wirebound.wiring.budget import RULES
from wirebound_lab.data.quoted import HELD_OUT_SEED, MARKS, Quoted, Texts
from wirebound_lab.gpt import ACTIVATIONS, plain_gpt, sparse_gpt
from wirebound_lab.run.config import ConfigError, RunConfig, as_config_error
from wirebound_lab.run.models import build_method, build_optimizer
from wirebound_lab.tasks.task import SEED, Figures, Questions, Record, Task

_HELD_OUT = 2000  # texts on which accuracy is measured
_SHAPE = ("context", "width", "depth", "heads", "activation", "mlp_factor")


def _without_means(model: nn.Module) -> None:
    """Norms that scale and do not shift: with a mean taken off, what one channel holds would show in all others."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(module, name, nn.RMSNorm(child.normalized_shape, eps=child.eps))


class Quotes(Task):
    """Training on texts that are made as they are needed."""

    name = "quotes"
    title = "closing the quote or bracket that was opened, with a small GPT in one budget"
    settings = (
        SEED,
        Setting("marks", "str", "quotes", "what opens and closes strings", choices=tuple(MARKS)),
        Setting("width", "int", 32, "numbers in the residual stream", least=1),
        Setting("depth", "int", 1, "blocks of attention and perceptron", least=1),
        Setting("heads", "int", 2, "heads of each attention", least=1),
        Setting("context", "int", 24, "tokens that the model sees at once", least=4),
        Setting("mlp_factor", "float", 2.0, "hidden neurons of a block as a multiple of width", above=0),
        Setting("activation", "str", "relu", "activation of the hidden neurons", choices=tuple(ACTIVATIONS)),
        Setting("norm", "str", "rms", "rms: a channel that nobody writes stays at zero; layer: the mean is subtracted too", choices=("rms", "layer")),
        Setting("allocation", "str", "erdos-renyi", "how the budget is shared out at the start", choices=tuple(RULES)),
        Setting("steps", "int", 200, "steps of an epoch", least=1),
        Setting("emphasis", "float", 0.5, "share of the loss that is on the closing mark alone", least=0, most=1),
        Setting("validation", "int", 0, "as for other tasks; held-out texts are the same with and without", least=0, most=0),
    )  # fmt: skip
    defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 10, "batch_size": 64, "optimizer": "adamw", "lr": 1e-2, "schedule": "cosine", "final_lr": 0.01,
        "l1": 0.01,
    }  # fmt: skip

    def __init__(self, config: RunConfig) -> None:
        self.config, self.per_epoch = config, config.steps
        self.text = Quoted(config.context + 1, config.marks)
        self.held_out = self.text.draw("held-out", _HELD_OUT, HELD_OUT_SEED, 0)
        vocab = len(self.text.tokens)
        self.input_shape = (vocab,)
        shape = {name: getattr(config, name) for name in _SHAPE} | {"vocab": vocab, "seed": config.seed}
        with as_config_error():
            if METHODS[config.method].plain:
                model = plain_gpt(**shape)
            else:
                model = sparse_gpt(config.budget, config.connectivity, allocation=config.allocation, **shape)
        if config.norm == "rms":
            _without_means(model)
        self.method = build_method(config, model, build_optimizer(config, model), self.per_epoch)

    @classmethod
    def check(cls, config: RunConfig) -> None:
        super().check(config)
        if config.width % config.heads:
            raise ConfigError(f"width (={config.width}) must be a multiple of heads (={config.heads})")

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        for number in range(start, self.per_epoch):
            step = (epoch - 1) * self.per_epoch + number
            tokens = self.text.draw("train", self.config.batch_size, self.config.seed, step).tokens
            yield Batch((tokens[:, :-1],), tokens[:, 1:])

    def loss(self, outputs: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        each = F.cross_entropy(outputs.transpose(1, 2), y, reduction="none")
        closing = each[torch.arange(len(y)), self.text.closing_places(y)]
        share = self.config.emphasis
        of_texts = (1 - share) * each.mean(1) + share * closing
        return of_texts.mean() if reduction == "mean" else of_texts.sum()

    def questions(self, part: str, count: int = _HELD_OUT) -> Questions:
        """Which mark closes the string? Of held-out texts, or of ones like those of training."""
        texts = self.held_out if part == "held-out" else self.text.draw("train", count, HELD_OUT_SEED, 1)
        texts = Texts(*(each[:count] for each in texts))
        every, before = torch.arange(len(texts.tokens)), texts.closing - 1

        def scores(logits: Tensor) -> Tensor:
            return logits[every, before][:, self.text.closers]

        return Questions(f"which of {len(self.text.closers)} marks closes the string", texts.tokens[:, :-1], texts.kinds, scores)

    @torch.no_grad()
    def measure(self, epoch: int, figures: Figures, record: Record) -> dict[str, float | None]:
        model, asked = self.method.model.eval(), self.questions("held-out")
        logits = model(asked.inputs)
        loss = self.loss(logits, self.held_out.tokens[:, 1:]).item()
        accuracy = (asked.scores(logits).argmax(1) == asked.answers).double().mean().item()
        figures |= {"test_accuracy": accuracy, "test_loss": loss}
        return {"test_accuracy": accuracy, "test_loss": loss}

    def facts(self, connectivity: float) -> dict[str, Any]:
        first = self.text.written(self.held_out.tokens[0])
        return {"data": self.config.marks, "evaluated_on": "test", "token_names": self.text.tokens, "held_out_example": first}
