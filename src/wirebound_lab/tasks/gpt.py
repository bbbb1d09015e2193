"""The next byte of a text, by a GPT whose matrices share one budget of connections.

The text is the source of Python's own standard library unless ``text`` names a folder. A step takes ``batch_size`` pieces of
``context`` bytes from anywhere in the training files, ``accumulate`` says in how many parts: memory goes with the part.
There is no end of the data: an epoch is ``steps`` steps, after which the loss on the first bytes of held-out files is taken.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.checkpoint import CheckpointError
from wirebound.distributed import world_size
from wirebound.engine.modules import Batch, Engine
from wirebound.engine.window import StepWindow
from wirebound.methods import METHODS, Setting
from wirebound.ops import philox
from wirebound.ops.philox import Stream
from wirebound.wiring.budget import RULES
from wirebound_lab.data.text import BYTES, load_text
from wirebound_lab.gpt import ACTIVATIONS, GPT, OUTSIDE, dead_neurons, plain_gpt, share_out, sparse_gpt
from wirebound_lab.run.accumulate import AccumulatingEngine
from wirebound_lab.run.config import ConfigError, RunConfig, as_config_error
from wirebound_lab.run.models import build_method, build_optimizer
from wirebound_lab.tasks.task import SEED, Figures, Record, Task

_PROBE = 8  # pieces of held-out text on which neurons must speak


class TextGPT(Task):
    """Training on pieces of text from anywhere, and the loss on files that were held out."""

    name = "gpt"
    title = "the next byte of a text, with a GPT in one budget"
    headline = "{bits_per_byte:.3f} bits a byte, {tokens_per_second:,.0f} tokens/s, {dead_neurons:,} of {hidden_neurons:,} hidden neurons dead"
    settings = (
        SEED,
        Setting("text", "str | None", None, "folder of text files (default: the source of Python's standard library)"),
        Setting("width", "int", 256, "numbers in the residual stream", least=1),
        Setting("depth", "int", 4, "blocks of attention and perceptron", least=1),
        Setting("heads", "int", 4, "heads of each attention", least=1),
        Setting("context", "int", 128, "bytes that the model sees at once", least=1),
        Setting("mlp_factor", "float", 4.0, "hidden neurons of a block as a multiple of width", above=0),
        Setting("activation", "str", "gelu", "activation of the hidden neurons", choices=tuple(ACTIVATIONS)),
        Setting("cover_all", "bool", True, "tokens, places and head are sparse, and counted in the budget"),
        Setting("allocation", "str", "erdos-renyi", "how the budget is shared out at the start", choices=tuple(RULES)),
        Setting("outer", "float", 6.0, "how many times more of the budget tokens, places and head get than by allocation", above=0),
        Setting("steps", "int", 100, "steps of an epoch, after each of which the loss on held-out text is measured", least=1),
        Setting("accumulate", "int", 1, "parts in which a batch goes through the model, one after the other", least=1),
        Setting("warmup", "float", 0.05, "share of the run over which η rises to lr, before the schedule sets in", least=0, below=1),
        Setting("clip", "float", 1.0, "largest norm of the gradient of all parameters; a longer one is scaled down", above=0),
        Setting("validation", "int", 0, "1: report on the validation files instead of the test files", least=0, most=1),
        Setting("windows", "int", 128, "pieces of held-out text on which the loss is measured", least=1),
    )  # fmt: skip
    defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 10, "batch_size": 16, "optimizer": "adamw", "lr": 2e-3, "schedule": "cosine", "final_lr": 0.1,
    }  # fmt: skip
    large_batches = True

    def __init__(self, config: RunConfig) -> None:
        self.config, self.per_epoch = config, config.steps
        self.data = load_text(config.text)
        self.input_shape = (BYTES,)
        self.part = "validation" if config.validation else "test"
        for part in ("train", self.part):
            if len(self.data.part(part)) < config.context + 2:
                raise ConfigError(f"text (={config.text}) has too few bytes for {part}: {len(self.data.part(part))}")
        shape = {name: getattr(config, name) for name in ("context", "width", "depth", "heads", "activation", "mlp_factor")}
        with as_config_error():
            model = self._model(shape)
            other = self._matrices(model)
        self.method = build_method(config, model, build_optimizer(config, model), self.per_epoch, **other)
        self.cpu_seconds = 0.0  # of all steps: on a machine that has other work to do, the clock says little

    def _model(self, shape: dict[str, Any]) -> GPT:
        config = self.config
        if METHODS[config.method].plain:
            return plain_gpt(vocab=BYTES, seed=config.seed, **shape)
        own = {name: getattr(config, name) for name in ("cover_all", "allocation", "outer", "seed")}
        return sparse_gpt(config.budget, config.connectivity, vocab=BYTES, **own, **shape)

    def _matrices(self, model: GPT) -> dict[str, Any]:
        """For methods that start with the plain model: which matrices they thin out, and how many weights each may keep."""
        config, kind = self.config, METHODS[self.config.method]
        exclude = [] if config.cover_all else [f"{name}.*" for name in OUTSIDE]
        if not kind.plain or "allocation" not in kind.takes:
            return {"exclude": exclude}
        how = (config.budget, config.connectivity, config.cover_all, config.allocation, config.outer)
        return {"exclude": exclude, "allocation": share_out(model, *how)}

    @classmethod
    def check(cls, config: RunConfig) -> None:
        super().check(config)
        if config.width % config.heads:
            raise ConfigError(f"width (={config.width}) must be a multiple of heads (={config.heads})")
        if config.accumulate > config.batch_size:
            raise ConfigError(f"accumulate (={config.accumulate}) must be at most batch_size (={config.batch_size})")

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        config, text = self.config, self.data.train
        span, cpu = torch.arange(config.context + 1), torch.device("cpu")
        for number in range(start, self.per_epoch):
            step, places = (epoch - 1) * self.per_epoch + number, len(text) - config.context
            starts = philox.integers_below(places, config.seed, Stream.ORDER, step, config.batch_size, cpu)
            piece = text[starts[:, None] + span].long()
            yield Batch((piece[:, :-1],), piece[:, 1:])

    def loss(self, outputs: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        return F.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction=reduction)

    def count(self, y: Tensor) -> int:
        return y.numel()

    def after_backward(self) -> None:
        nn.utils.clip_grad_norm_(self.method.model.parameters(), self.config.clip)

    def engine(self, config: RunConfig) -> Engine:
        if config.accumulate == 1 or config.engine == "fused":
            return super().engine(config)
        if world_size() > 1:
            raise ConfigError(f"accumulate (={config.accumulate}) must be 1 where several processes train together")
        engine = AccumulatingEngine(self.method.model, self.method, self.loss, config.accumulate)
        engine.after_backward = self.after_backward
        return engine

    def take_steps(
        self, engine: Engine, epoch: int, lrs: Sequence[float], start: int, pause: Callable[[], bool]
    ) -> Iterator[StepWindow]:
        began = time.process_time()
        for part in super().take_steps(engine, epoch, lrs, start, pause):
            self.cpu_seconds += time.process_time() - began
            yield part
            began = time.process_time()

    def held_out(self) -> Tensor:
        """Pieces of held-out text [windows, context + 1], evenly over all of it."""
        text, length = self.data.part(self.part), self.config.context + 1
        starts = torch.linspace(0, len(text) - length, self.config.windows, dtype=torch.float64).long()
        return text[starts[:, None] + torch.arange(length)].long()

    @torch.no_grad()
    def measure(self, epoch: int, figures: Figures, record: Record) -> dict[str, float | None]:
        model, right, total, pieces = self.method.model.eval(), 0, 0.0, self.held_out()
        assert isinstance(model, GPT)
        for part in pieces.split(max(1, self.config.batch_size // self.config.accumulate)):
            logits = model(part[:, :-1])
            right += int((logits.argmax(-1) == part[:, 1:]).sum())
            total += self.loss(logits, part[:, 1:], reduction="sum").item()
        count = pieces[:, 1:].numel()
        figures |= {"test_loss": total / count, "bits_per_byte": total / count / math.log(2), "test_accuracy": right / count}
        figures |= {**dead_neurons(model, pieces[:_PROBE, :-1]), "cpu_seconds": round(self.cpu_seconds, 3)}
        return {name: figures[name] for name in ("test_loss", "test_accuracy", "dead_neurons", "unconnected_neurons", "silent_neurons", "cpu_seconds")}

    def facts(self, connectivity: float) -> dict[str, Any]:
        parts = {"train": self.data.train, self.part: self.data.part(self.part)}
        sizes = {part: {"bytes": len(text), "files": self.data.files[part]} for part, text in parts.items()}
        parameters = sum(parameter.numel() for parameter in self.method.model.parameters())
        text = {"data": self.data.name, "text": sizes, "text_sha256": self.data.sha256}
        return {**text, "evaluated_on": self.part, "parameters": parameters}

    def conclude(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        tokens = summary["steps"] * self.config.batch_size * self.config.context
        return {"tokens": tokens, "tokens_per_second": round(tokens / max(1e-9, summary["training_seconds"]), 1)}

    def state(self) -> dict[str, Any]:
        return {"cpu_seconds": self.cpu_seconds}

    def load_state(self, stored: dict[str, Any]) -> None:
        try:
            self.cpu_seconds = float(stored["cpu_seconds"])
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"what was kept of the CPU time cannot be read: {error}") from error
