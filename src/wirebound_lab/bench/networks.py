"""Whole networks as people train them, dense torch beside ours: the paper's on CIFAR-10 and on speech, with input, loss,
optimiser and evaluation of ``wirebound train``, and a layer of a transformer."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

import wirebound as wb
from wirebound import ops
from wirebound.engine.modules import ModuleEngine, never
from wirebound.nn.sparse_layer import wirings
from wirebound_lab.data import status
from wirebound_lab.run.config import RunConfig, tasks
from wirebound_lab.run.processes import freed_memory_kept
from wirebound_lab.tasks.phonemes import PhonemeNet, TwoWayLSTM

from . import machine
from .contenders import gradient_of, require_twin
from .contest import Call, Contender, Measurement, Ratio, Section, Settings, Table, Wanted, compete, threads
from .csr import require_csr_twin, with_csr

CIFAR_GOALS = {"5 %": Wanted(avx2=2.5, avx512=2.5), "20 %": Wanted(avx2=1, avx512=1)}  # of one step and of the epoch
SPEECH_GOAL, TRANSFORMER_GOAL = Wanted(avx2=4, avx512=4), Wanted(avx2=3, avx512=3)
# A part of an epoch, with as much evaluation for each image as the whole has.
CIFAR = {"task": "cifar", "images": 2560, "test_images": 512}
QUICK_CIFAR = {**CIFAR, "images": 256, "test_images": 51}
SPEECH = {"task": "phonemes", "utterances": 256, "test_utterances": 128}
QUICK_SPEECH = {**SPEECH, "utterances": 32, "test_utterances": 8}
WIDTH, HEADS, TOKENS, BATCH = 512, 8, 128, 8
DENSE, OUR_DENSE, OURS = "dense", "dense, our kernels", "ours"


class Training:
    """A run of the program, of which steps or parts of an epoch are taken again and again; ``plain``: by torch alone."""

    def __init__(self, settings: Mapping[str, Any], connectivity: float | None = None, *, plain: bool = False) -> None:
        self.backend = partial(ops.use, "reference") if plain else nullcontext
        which = {"method": "dense"} if connectivity is None else {"method": "deep-r", "connectivity": connectivity}
        self.config = RunConfig(**settings, **which)
        self.task = tasks()[self.config.task](self.config)
        engine = self.task.engine(self.config)
        assert isinstance(engine, ModuleEngine)
        self.engine, self.model = engine, self.task.method.model
        (self.batch,) = islice(self.task.batches(1, 0), 1)

    def step(self) -> None:
        """One training step with all that the task adds to it (decay, moving average), on a batch that is there."""
        with self.backend():
            list(self.engine.steps([self.batch], [self.config.lr], 1))

    def epoch(self) -> None:
        """All batches with their preparation, one step each, and the evaluation."""
        with self.backend():
            list(self.task.take_steps(self.engine, 1, [self.config.lr] * self.task.per_epoch, 0, never))
            self.task.measure(1, {}, lambda *kind, **values: None)

    def check(self, twin: nn.Module, weights: Sequence[str]) -> None:
        """Raise unless loss and gradients are those of the dense twin, with these matrices."""
        loss = lambda network: self.engine.loss(network(*self.batch.inputs), self.batch.y)  # noqa: E731
        require_twin(self.model, twin, loss, lambda: [gradient_of(twin.get_parameter(name)) for name in weights])


def missing(name: str) -> str:
    """Why a data set cannot be used, or nothing."""
    (found,) = (one for one in status() if one.name == name)
    return f"{name} was not found ({found.where})" if found.state == "missing" else ""


def race_with_dense(label: str, runs: Mapping[str, Call], settings: Settings) -> Measurement:
    ratios = [Ratio(f"{DENSE} ÷ {name}", DENSE, name) for name in runs if name != DENSE]
    return compete(label, [Contender(name, run) for name, run in runs.items()], settings, ratios)


@freed_memory_kept()  # as `wirebound train` does for this task
def measure_cifar(settings: Settings) -> Section:
    title = "CIFAR-10, the tutorial's network"
    if why_not := missing("cifar10"):
        return Section("cifar", title, [], notes=[f"Omitted: {why_not}."])
    part = QUICK_CIFAR if settings.quick else CIFAR
    networks = {DENSE: Training(part, plain=True), OUR_DENSE: Training(part)}
    networks |= {name: Training(part, float(name.removesuffix(" %")) / 100) for name in CIFAR_GOALS}
    for name in CIFAR_GOALS:
        model = networks[name].model
        networks[name].check(wb.to_dense(model), [f"{shape.name}.weight" for shape in wirings(model)[0].layers])
    tables, goals = [], []
    counts = (1, 2) if machine.cores() > 1 else (1,)
    for what, runs in (
        ("one training step", {name: network.step for name, network in networks.items()}),
        ("the epoch", {name: network.epoch for name, network in networks.items()}),
    ):
        found = []
        for count in counts:
            with threads(count):
                found.append(race_with_dense(f"{what}, B 128, threads {count}", runs, settings))
            for name, wanted in CIFAR_GOALS.items():
                subject = f"CIFAR-10 network, {name}, {found[-1].workload}: dense ÷ ours"
                goals += settings.goal(subject, wanted, found[-1].numbers[f"{DENSE} ÷ {name}"])
        tables.append(Table(what.capitalize(), found))
    notes = [
        "The network, budget and settings of `wirebound train --task cifar` (at 5 % the second convolution starts at 20 %, at "
        "20 % at 80 %). Dense is torch alone; with our kernels for input, convolution and pooling it is `--method dense`. "
        "A step has forward, backward, ℓ2, SGD (ours: DEEP R) and the moving average of the weights; its batch is there.",
        f"The epoch is a part of one, {part['images']:,} images, with the preparation of its batches and the evaluation of "
        f"the averages on {part['test_images']:,} test images. torch has no CSR convolution.",
    ]
    return Section("cifar", title, tables, goals, notes)


def speech_twin(model: PhonemeNet) -> PhonemeNet:
    """The dense network of the task with a sparse one's weights."""
    lstm = model.get_submodule("lstm")
    twin = PhonemeNet(TwoWayLSTM(lstm.input_size, lstm.hidden_size), wb.to_dense(model.readout))  # type: ignore[arg-type]
    both: nn.Module = lstm.dense_twin()  # type: ignore[operator]
    for name, parameter in both.named_parameters():
        way = "back" if name.endswith("_reverse") else "ahead"
        twin.get_parameter(f"lstm.{way}.{name.removesuffix('_reverse')}").data.copy_(parameter)
    return twin


@freed_memory_kept()  # as `wirebound train` does for this task
def measure_speech(settings: Settings) -> Section:
    title = "Speech, bidirectional LSTM"
    if why_not := missing("speech"):
        return Section("speech", title, [], notes=[f"Omitted: {why_not}."])
    part = QUICK_SPEECH if settings.quick else SPEECH
    dense, ours = Training(part, plain=True), Training(part, 0.1)
    assert isinstance(ours.model, PhonemeNet)
    matrices = [f"lstm.{way}.weight_{kind}_l0" for way in ("ahead", "back") for kind in ("ih", "hh")]
    ours.check(speech_twin(ours.model), [*matrices, "readout.weight"])
    runs = {DENSE: dense.epoch, OURS: ours.epoch}
    with threads(settings.threads):
        found = race_with_dense("LSTM 39→2×200, the epoch, B 32, 10 %", runs, settings)
    goals = settings.goal(f"Speech, {found.workload}: dense ÷ ours", SPEECH_GOAL, found.numbers[f"{DENSE} ÷ {OURS}"])
    notes = [
        "Network, data and settings of `wirebound train --task phonemes`, dense by `--method dense` (two one-way LSTMs, which "
        f"are faster than torch's packed sequences). The epoch is a part of one: {part['utterances']} utterances, Adam (ours: "
        f"DEEP R), and the evaluation on up to {part['test_utterances']} utterances each of validation and test. torch has no "
        "CSR LSTM."
    ]
    return Section("speech", title, [Table("The epoch", [found])], goals, notes)


class EncoderLayer:
    """Training steps with Adam of an encoder layer; the gradient of its output is given."""

    def __init__(self, model: nn.Module, x: Tensor, dy: Tensor, *, sparse: bool = False) -> None:
        self.model, self.x, self.dy = model, x, dy
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        if sparse:
            wb.DeepR(model, self.optimizer)  # from here on, its steps are the optimiser's

    def loss(self, model: nn.Module) -> Tensor:
        loss: Tensor = (model(self.x) * self.dy).sum()
        return loss

    def step(self) -> None:
        self.optimizer.zero_grad()
        torch.autograd.backward(self.model(self.x), self.dy)
        self.optimizer.step()


def encoder_layers(width: int, heads: int, tokens: int, batch: int, connectivity: float) -> dict[str, EncoderLayer]:
    """Dense, torch's CSR and ours, the last two with the same weights, which are compared with a dense twin's."""
    generator = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(batch, tokens, width, generator=generator) for _ in range(2))
    make = lambda: nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)  # noqa: E731
    model = wb.sparsify(make(), connectivity, seed=0)
    twin, by_csr = wb.to_dense(model), with_csr(model)

    def gradients() -> list[Tensor]:
        names = ("self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight")
        first, *others = (gradient_of(twin.get_parameter(name)) for name in names)
        return [*first.chunk(3), *others]

    ours = EncoderLayer(model, x, dy, sparse=True)
    require_csr_twin(by_csr, twin, ours.loss, gradients)
    require_twin(model, twin, ours.loss, gradients)
    return {DENSE: EncoderLayer(make(), x, dy), "torch CSR": EncoderLayer(by_csr, x, dy), OURS: ours}


def measure_transformer(settings: Settings) -> Section:
    connectivity, batch = 0.05, 2 if settings.quick else BATCH
    with threads(settings.threads):
        layers = encoder_layers(WIDTH, HEADS, TOKENS, batch, connectivity)
        label = f"encoder layer {WIDTH}, {TOKENS} tokens, B {batch}, {100 * connectivity:g} %"
        found = race_with_dense(label, {name: layer.step for name, layer in layers.items()}, settings)
    found.numbers["torch CSR ÷ ours"] = found.times["torch CSR"].best / found.times[OURS].best
    goals = settings.goal(f"Transformer {label}: dense ÷ ours", TRANSFORMER_GOAL, found.numbers[f"{DENSE} ÷ {OURS}"])
    notes = [
        f"`nn.TransformerEncoderLayer` with {HEADS} heads and {4 * WIDTH} hidden units, no dropout: training steps with Adam, ours "
        "with DEEP R; six matrices are sparse. torch CSR: the same connections, fixed."
    ]
    return Section("transformer", "Transformer", [Table("Training step", [found])], goals, notes)
