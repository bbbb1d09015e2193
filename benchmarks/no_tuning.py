"""No tuning: is α that DEEP R chooses itself (``l1="auto"``) as good as the best α of a scan, on every task?

    python benchmarks/no_tuning.py run                            all runs that are not there yet, then the table
    python benchmarks/no_tuning.py run --tasks mnist-adam-1 --seeds 0 --methods fixed auto
    python benchmarks/no_tuning.py table                          the table of what is there

Sixteen tasks: networks, optimisers and connectivities whose best fixed α differ by orders of magnitude. ``auto`` has one
and the same setting in all of them. Accuracy is that of the last epoch on held-out training data; no test set decides or
is reported. Each finished run is a file below ``OUT/runs``: an interrupted study goes on with the same command.
"""

import argparse
import json
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb
from wirebound.checkpoint.atomic import write_file
from wirebound.optim.named import SCHEDULES, make_optimizer
from wirebound_lab.paper.job import Job, Outcomes, TrainJob, run_jobs
from wirebound_lab.run.config import make_config
from wirebound_lab.run.processes import Interrupted
from wirebound_lab.run.record import RunFolderError
from wirebound_lab.tables import deviation, markdown_table, plus_minus

Settings = Mapping[str, Any]
Record = dict[str, Any]  # of one finished run, as its file has it
L1 = float | str | None  # a fixed α, "auto", or None for fixed connectivity
Runs = dict[L1, list[Record]]  # of a task: fixed connectivity, the scan and auto, each in the order of the seeds
AUTO, TEXT = "auto", "text"
METHODS = ("fixed", "scan", AUTO)
NEAR = 0.2  # points of accuracy within which auto counts as good as the best α
FALLING = {"schedule": "cosine", "final_lr": 0.001}  # the learning rate, in all tasks


class Case(NamedTuple):
    """A task of the study, and the fixed α that it is tried with: from the lowest in factors of √10."""

    settings: Settings
    lowest: float
    values: int
    quick: Settings  # what makes it tiny

    def scan(self) -> list[float]:
        return [float(f"{self.lowest * 10 ** (i / 2):.3g}") for i in range(self.values)]


MNIST = {  # of each optimiser: batch size, learning rates at 0.5, 1, 5 and 20 %, lowest α
    "sgd": (20, (1.4, 1.4, 0.7, 0.35), 1e-5),
    "momentum": (32, (0.2, 0.1, 0.1, 0.05), 1e-4),
    "adam": (64, (0.04, 0.04, 0.01, 0.004), 1e-3),
}
PERCEPTRON = {"task": "perceptron", "bias": True, "init": "sparse-fan-in", "allocation": "paper", "epochs": 6}
DIGITS = {"data": "digits", "validation": 300, "epochs": 3}  # come with scikit-learn


def _cases() -> Iterator[tuple[str, Case]]:
    for optimizer, (batch_size, rates, lowest) in MNIST.items():
        for connectivity, lr in zip((0.005, 0.01, 0.05, 0.2), rates, strict=True):
            own = {"optimizer": optimizer, "lr": lr, "batch_size": batch_size, "connectivity": connectivity}
            settings = {**PERCEPTRON, "data": "mnist", "hidden": [300, 100], "validation": 10_000, **own}
            yield f"mnist-{optimizer}-{100 * connectivity:g}", Case(settings, lowest, 5, DIGITS)
    adam = {"optimizer": "adam", "lr": 0.01, "connectivity": 0.05}
    settings = {**PERCEPTRON, "data": "cifar10", "hidden": [1000, 300], "validation": 5000, "batch_size": 64}
    yield "cifar10-perceptron-1", Case({**settings, **adam, "connectivity": 0.01}, 1e-3, 5, DIGITS)
    settings = {
        "task": "cifar", "optimizer": "momentum", "momentum": 0.9, "lr": 0.05, "connectivity": 0.05, "init": "scaled",
        "average": 0.99, "evaluate_every": 5, "epochs": 5, "validation": 5000,
    }  # fmt: skip
    yield "cifar10-network-5", Case(settings, 1e-4, 4, {"epochs": 1, "images": 256, "test_images": 200})
    # More speakers are held out than usual, for a more certain figure; the loop's evaluation of the test part is cut short.
    settings = {"task": "phonemes", "validation": 0.2, "test_utterances": 500, "epochs": 28, **adam}
    yield "speech-lstm-5", Case(settings, 1e-3, 5, {"epochs": 2, "utterances": 64, "test_utterances": 32})
    settings = {"task": TEXT, **adam, "lr": 0.003, "batch_size": 32, "steps": 1500, "context": 64, "sample": 2000}
    yield "text-transformer-5", Case(settings, 1e-3, 5, {"steps": 60, "batch_size": 8, "sample": 50})


CASES = dict(_cases())


@dataclass(frozen=True)
class StudyRun(Job):
    """One run; its file is there when it has ended."""

    folder: str  # TASK/NAME.json, its file below OUT/runs
    settings: Settings

    def run(self, path: Path) -> Record:
        began, own = time.perf_counter(), self.settings
        try:
            measured = train_text(own) if own["task"] == TEXT else train_command(own)
        except ArithmeticError as error:  # it diverged: a result too, which another try would not change
            measured = {"accuracy": 0.0, "connectivity": own["connectivity"], "turnover": 0.0, "diverged": str(error)}
        record = {
            "task": self.folder.split("/")[0], "method": own["method"], "l1": own.get("l1"), "seed": own["seed"], **measured,
            "seconds": round(time.perf_counter() - began, 1), "wirebound": wb.__version__,
            "python": sys.version.split()[0], "torch": torch.__version__, "settings": dict(own),
        }  # fmt: skip
        write_file(path, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())
        return record

    def finished(self, path: Path) -> Record | None:
        if not path.exists():
            return None
        record = json.loads(path.read_text(encoding="utf-8"))
        names = self.settings.keys() | record["settings"].keys()
        if other := sorted(name for name in names if record["settings"].get(name) != self.settings.get(name)):
            raise RunFolderError(f"its settings differ in {', '.join(other)}")
        return {**record, "test_accuracy": record["accuracy"] / 100}  # as the pool prints it


def plan(tasks: Sequence[str], seeds: Sequence[int], methods: Sequence[str], quick: bool) -> list[StudyRun]:
    """All runs, seed by seed: an interrupted study has whole seeds. Settings are checked here, before the first run."""
    runs = []
    for seed in seeds[:1] if quick else seeds:
        for task in tasks:
            case = CASES[task]
            scan = case.scan()[:2] if quick else case.scan()
            pulls: dict[str, Sequence[L1]] = {"fixed": [None], "scan": scan, AUTO: [AUTO]}
            for l1 in (l1 for method in methods for l1 in pulls[method]):
                own = {"method": "fixed"} if l1 is None else {"method": "deep-r", "l1": l1, "noise": 1e-6}
                settings = {**case.settings, **FALLING, **(case.quick if quick else {}), **own, "seed": seed}
                if settings["task"] != TEXT:
                    make_config(settings)
                runs.append(StudyRun(f"{task}/{l1 or 'fixed'}-s{seed}.json", settings))
    return runs


def train_command(settings: Settings) -> Record:
    """A run as ``wirebound train`` does it; its folder is not kept."""
    job = TrainJob("run", make_config(settings))
    with tempfile.TemporaryDirectory(prefix="wirebound-") as folder:
        summary = job.run(Path(folder) / job.folder)
        windows = Outcomes(Path(folder), {}, {}).metrics(job, "window")
    # Speech has a validation part beside its test part; either figure is that of the last epoch.
    assert "validation_error" in summary or summary["evaluated_on"] == "validation"
    accuracy = 1 - summary["validation_error"] if "validation_error" in summary else summary["test_accuracy"]
    turnover = sum(sum(window["newborns"]) for window in windows) / summary["budget"] / summary["steps"]
    measured = {"accuracy": 100 * accuracy, "connectivity": summary["connectivity"], "turnover": turnover}
    return {**measured, "config": job.config.identity()}  # with the defaults of this version


# Text: the next character of Python's own standard library

LEFT_OUT = {"site-packages", "test", "tests", "idle_test", "encodings", "pydoc_data"}  # the last two are tables
LETTERS = "\n" + "".join(map(chr, range(32, 127)))


def read_text() -> tuple[Tensor, Tensor]:
    """Training and held-out text as numbers of letters; what is no printable ASCII is left out."""
    home = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(file for file in home.rglob("*.py") if not LEFT_OUT.intersection(file.relative_to(home).parts))
    if not files:
        raise ValueError(f"stdlib (={home}) must hold the source files of Python's standard library")
    numbers, first = torch.full((256,), -1), len(files) - len(files) // 10
    numbers[list(LETTERS.encode())] = torch.arange(len(LETTERS))
    texts = (bytearray().join(file.read_bytes() for file in part) for part in (files[:first], files[first:]))
    train, held_out = (numbers[torch.frombuffer(text, dtype=torch.uint8).int()] for text in texts)
    return train[train >= 0], held_out[held_out >= 0]


class CharTransformer(nn.Module):
    """Logits of the next letter at each place, [B, T, letters], from letters [B, T]; no place sees those after it."""

    def __init__(self, context: int, width: int = 128, heads: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), width)
        self.places = nn.Parameter(0.02 * torch.randn(context, width))
        # Norms first: with norms last, the learning rate would have to start low.
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, blocks, nn.LayerNorm(width), enable_nested_tensor=False)
        self.out = nn.Linear(width, len(LETTERS))
        self.mask = nn.Transformer.generate_square_subsequent_mask(context)

    def forward(self, letters: Tensor) -> Tensor:
        logits: Tensor = self.out(self.blocks(self.embedding(letters) + self.places, mask=self.mask, is_causal=True))
        return logits


def predict_text(model: nn.Module, text: Tensor, starts: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Logits at every place of some windows of a text, and the letters that follow there."""
    windows = text[starts[:, None] + torch.arange(context + 1)]
    return model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten()


def train_text(settings: Settings) -> Record:
    """The transformer, rewired between embedding and output, which stay dense."""
    seed, steps, context = settings["seed"], settings["steps"], settings["context"]
    text, held_out = read_text()
    torch.manual_seed(seed)  # the first weights of torch's own modules take no generator
    model = wb.sparsify(CharTransformer(context), settings["connectivity"], exclude=("embedding", "out"), seed=seed)
    optimizer = make_optimizer(settings["optimizer"], model.parameters(), settings["lr"])
    own = {name: settings[name] for name in ("l1", "noise") if name in settings}
    method = {"fixed": wb.Fixed, "deep-r": wb.DeepR}[settings["method"]](model, optimizer, **own)
    draw, replaced = torch.Generator().manual_seed(seed), 0
    for step in range(steps):
        factor = SCHEDULES[settings["schedule"]](step / max(1, steps - 1), settings["final_lr"])
        for group in optimizer.param_groups:
            group["lr"] = settings["lr"] * factor
        starts = torch.randint(len(text) - context, (settings["batch_size"],), generator=draw)
        F.cross_entropy(*predict_text(model, text, starts, context)).backward()  # type: ignore[no-untyped-call]
        replaced += method.step().rewired
        optimizer.zero_grad()
    accuracy = text_accuracy(model, held_out, settings["sample"], context)
    turnover, connectivity = replaced / method.budget / steps, method.budget / sum(s.possible for s in method.shapes)
    used = {setting.name: setting.default for setting in method.settings} | dict(settings)
    return {"accuracy": 100 * accuracy, "connectivity": connectivity, "turnover": turnover, "config": used}


@torch.no_grad()
def text_accuracy(model: nn.Module, text: Tensor, windows: int, context: int) -> float:
    """The share of letters that are predicted, in windows all over the text."""
    starts = torch.arange(windows) * (len(text) - context) // windows
    parts = (predict_text(model.eval(), text, part, context) for part in starts.split(50))
    return sum(int((logits.argmax(1) == following).sum()) for logits, following in parts) / windows / context


# Tables


def read_runs(out: Path) -> dict[str, Runs]:
    """All finished runs of the tasks that have some."""
    found: dict[str, Runs] = {}
    for task, case in CASES.items():
        read = (json.loads(path.read_text(encoding="utf-8")) for path in (out / "runs" / task).glob("*.json"))
        if records := sorted(read, key=lambda record: record["seed"]):
            found[task] = {l1: [r for r in records if r["l1"] == l1] for l1 in (None, *case.scan(), AUTO)}
    if not found:
        raise ValueError(f"out (={out}) must hold finished runs in its folder runs")
    return found


def mean_of(runs: Sequence[Record], what: str) -> float:
    return statistics.mean(run[what] for run in runs)


def cells(runs: Sequence[Record]) -> tuple[str, str]:
    """Accuracy, and the share of connections that is replaced in a step."""
    if not runs:
        return "–", "–"
    accuracy = plus_minus(mean_of(runs, "accuracy"), deviation(run["accuracy"] for run in runs))
    return accuracy, f"{100 * mean_of(runs, 'turnover'):.3f}"


def best_of(runs: Runs) -> tuple[str, list[Record]]:
    """The fixed α with the highest mean accuracy, of those with the most seeds (others are not finished yet)."""
    scan = {l1: each for l1, each in runs.items() if isinstance(l1, float) and each}
    if not scan:
        return "–", []
    best = max(scan, key=lambda l1: (len(scan[l1]), mean_of(scan[l1], "accuracy")))
    return f"{best:g}{'*' if best in (min(scan), max(scan)) else ''}", scan[best]


def comparison(found: Mapping[str, Runs]) -> str:
    """One line a task, and in how many of them auto is good enough."""
    rows, means = [], []
    for task, runs in found.items():
        (l1, best), auto = best_of(runs), runs[AUTO]
        by_seed, difference = {run["seed"]: run["accuracy"] for run in best}, "–"
        if gaps := [run["accuracy"] - by_seed[run["seed"]] for run in auto if run["seed"] in by_seed]:
            means.append(statistics.mean(gaps))
            spread = deviation(gaps)
            difference = plus_minus(means[-1], spread and spread / len(gaps) ** 0.5, sign="+")
        own = CASES[task].settings
        numbers = (own["optimizer"], f"{own['lr']:g}", f"{100 * own['connectivity']:g}", cells(runs[None])[0], l1)
        accuracies, shares = zip(cells(best), cells(auto), strict=True)
        rows.append([task, *numbers, *accuracies, difference, *shares])
    columns = (
        "task", "optimiser", "learning rate", "connectivity, %", "fixed connectivity", "best α", "accuracy, best α",
        "accuracy, auto", "auto − best", "replaced a step, best α, %", "replaced a step, auto, %",
    )  # fmt: skip
    near = sum(mean >= -NEAR for mean in means)
    verdict = f"Auto is within {NEAR:g} points of the best α, or better, in {near} of {len(means)} tasks."
    return f"{markdown_table(columns, rows, range(2, len(columns)))}\n\n{verdict}\n"


def whole_scan(found: Mapping[str, Runs]) -> str:
    """One line a task and α."""
    every = [(task, l1, runs) for task, by_l1 in found.items() for l1, runs in by_l1.items() if runs]
    rows = [[task, l1 or "fixed", *cells(runs), len(runs), round(mean_of(runs, "seconds"))] for task, l1, runs in every]
    return markdown_table(("task", "α", "accuracy", "replaced a step, %", "seeds", "seconds"), rows, range(1, 6)) + "\n"


def write_table(out: Path) -> None:
    found = read_runs(out)
    every = [run for by_l1 in found.values() for runs in by_l1.values() for run in runs]
    seeds, versions, pythons = (sorted({run[name] for run in every}) for name in ("seed", "wirebound", "python"))
    head = f"""# No tuning: α that DEEP R chooses itself, against a scan

Made by `python benchmarks/no_tuning.py run`, wirebound {", ".join(versions)}, Python {", ".join(pythons)} (whose standard
library is the text). Accuracy in percent on held-out training data after the last epoch, mean ± sample standard
deviation over seeds {seeds}; a run that diverged counts as 0. The scan goes in factors of √10, and * marks a best α at
an end of it. The best is chosen on the data on which it is compared, which favours the scan. auto − best: seed by seed,
mean ± standard error. Replaced a step: share of the connections, mean over the run.

"""
    between = "\n## The whole scan\n\nSeconds are those of one run on one thread, on a machine that may be shared.\n\n"
    write_file(out / "README.md", (head + comparison(found) + between + whole_scan(found)).encode())
    print(f"table: {out / 'README.md'}")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")  # one line, without the usage


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(description="α chosen by the method itself, against a scan of fixed α and fixed connectivity.")
    parser.add_argument("what", choices=("run", "table"), help="do the runs and write the table, or the table alone")
    parser.add_argument("--out", type=Path, default=Path("results/no_tuning"), help="(default: %(default)s)")
    for name, known in (("--tasks", tuple(CASES)), ("--methods", METHODS)):
        parser.add_argument(name, nargs="+", choices=known, default=known, metavar="NAME", help=", ".join(known))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(default: 0 1 2)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each (default: 2)")
    parser.add_argument("--quick", action="store_true", help="tiny runs of one seed and two α, in the folder OUT/quick")
    options = parser.parse_args(arguments)
    for name, value, least in (("jobs", options.jobs, 1), ("seeds", min(options.seeds), 0)):
        if value < least:
            parser.error(f"{name} (={value}) must be >= {least}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    out = options.out / "quick" if options.quick else options.out
    try:
        if options.what == "run":
            jobs = plan(options.tasks, options.seeds, options.methods, options.quick)
            run_jobs(jobs, out / "runs", options.jobs, lambda text: print(text, flush=True))
        write_table(out)
    except (ValueError, OSError, Interrupted) as error:
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "code", 2)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
