"""Texts over a million hashed columns: DEEP R inside a budget beside scikit-learn's linear models and its network.

    python benchmarks/wide_text.py choose --out results/wide      settings of all, on held-out training texts, 2^18 columns
    python benchmarks/wide_text.py test --out results/wide        the test texts, 2^18 and 2^20 columns, three seeds
    python benchmarks/wide_text.py words --out results/wide       which words the wiring chose: words.svg

Words and pairs of words of Debian's package descriptions (``data.load_texts("debian")``), 35 sections, hashed into 2^18 or
2^20 columns, rows of length 1, the same for all. Every contender trains in a process of its own; this one reads that
process's peak memory from the system before it ends. DEEP R's engine counts the active connections after every step and stops
unless there are exactly K.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import wide_text_contenders
import wide_text_words
from sklearn.feature_extraction.text import HashingVectorizer

from wirebound_lab import data
from wirebound_lab.bench.watched import peak_memory
from wirebound_lab.data import TextDataset
from wirebound_lab.paper.study import read_json, study_parser, write_study
from wirebound_lab.tables import deviation, markdown_table, plus_minus

SEEDS, BITS = (0, 1, 2), (18, 20)
HELD_OUT = 0.15
Case = tuple[str, str, dict[str, Any]]  # what the table calls it, who it is, its own settings

DEEP_R = "DeepRClassifier"
CASES: list[Case] = [
    ("DEEP R, 128 hidden, K = 50,000", DEEP_R, {"hidden_layer_sizes": [128], "budget": 50_000}),
    ("DEEP R, 128 hidden, K = 200,000", DEEP_R, {"hidden_layer_sizes": [128], "budget": 200_000}),
    ("DEEP R, 128 hidden, K = 800,000", DEEP_R, {"hidden_layer_sizes": [128], "budget": 800_000}),
    ("DEEP R, linear, K = 200,000", DEEP_R, {"hidden_layer_sizes": [], "budget": 200_000}),
    ("fixed wiring, 128 hidden, K = 200,000", DEEP_R, {"hidden_layer_sizes": [128], "budget": 200_000, "method": "fixed"}),
    ("SGDClassifier, log loss", "SGDClassifier", {}),
    ("LogisticRegression, l1", "LogisticRegression, l1", {}),
    ("MLPClassifier, best 4,096 columns", "MLPClassifier", {}),
]
_MIDDLE = "DEEP R, 128 hidden, K = 200,000"
SAME_AS = {f"DEEP R, 128 hidden, K = {budget}": _MIDDLE for budget in ("50,000", "800,000")}  # settings of another budget
GRIDS: dict[str, dict[str, list[Any]]] = {  # by title, or by who it is
    _MIDDLE: {"l1": [0.03, "auto", 0.1, 0.01], "learning_rate": [0.03, 0.01], "epochs": [10]},
    "DEEP R, linear, K = 200,000": {"l1": [0.03], "learning_rate": [0.3, 0.03], "epochs": [10]},
    "fixed wiring, 128 hidden, K = 200,000": {"learning_rate": [0.03, 0.01], "epochs": [10, 3]},
    "SGDClassifier": {"alpha": [1e-6, 1e-5, 1e-7], "max_iter": [20], "tol": [None]},
    "LogisticRegression, l1": {"C": [10.0, 3.0, 30.0]},
    "MLPClassifier": {"max_iter": [10, 5, 20]},
}
RANDOM = (DEEP_R, "SGDClassifier", "MLPClassifier")  # those that another seed changes


def vectorizer(bits: int) -> HashingVectorizer:
    return HashingVectorizer(n_features=2**bits, ngram_range=(1, 2), alternate_sign=False, dtype=np.float32)


def write_texts(texts: TextDataset, bits: int, folder: Path) -> dict[str, Any]:
    """The rows of all parts: train and test, and of the training texts those held out and the rest."""
    split, hashed = texts.split_validation(HELD_OUT, seed=0), vectorizer(bits)
    parts = {
        "train": (texts.train_texts, texts.train_y), "test": (texts.test_texts, texts.test_y),
        "rest": (split.train_texts, split.train_y), "held": (split.test_texts, split.test_y),
    }  # fmt: skip
    for name, (part, y) in parts.items():
        X = hashed.transform(part)
        wide_text_contenders.write_rows(folder, name, X, y)
        if name == "train":
            shape = {"rows": X.shape[0], "columns": X.shape[1], "nonzeros": X.nnz, "occurring": len(np.unique(X.indices))}
    return {**shape, "test_rows": len(texts.test_y), "classes": texts.classes}


def run_apart(folder: Path, name: str, part: str, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a contender says of itself, and the peak of its resident memory, which the system says."""
    asked = json.dumps({"name": name, "part": part, "seed": seed, "settings": settings})
    script = Path(wide_text_contenders.__file__)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(folder), asked]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    said = child.stdout.readline()  # it then waits until it has been measured
    peak = peak_memory(child.pid)  # wait4 would count its parent's memory too
    child.stdin.close()
    if child.wait():
        raise OSError(f"the process of {name} failed with {child.returncode}")
    return {**json.loads(said), "peak_bytes": peak}


def settings_of(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def choose(cases: Sequence[Case], folder: Path, known: dict[str, Any], out: Path, tries: int | None) -> dict[str, Any]:
    """The settings of each case that do best on the held-out texts, and all that were tried."""
    for title, name, own in cases:
        if title in SAME_AS:
            continue
        tried = known.get(title, {}).get("tried", [])
        for settings in itertools.islice(settings_of(GRIDS.get(title) or GRIDS[name]), tries):
            if any(line["settings"] == settings for line in tried):
                continue
            found = run_apart(folder, name, "held", 0, {**own, **settings})
            tried.append({"settings": settings, "accuracy": found["accuracy"], "seconds": found["seconds"]})
            print(f"{title:<40} {settings} {100 * found['accuracy']:.2f} %, {found['seconds']:.1f} s", flush=True)
            best = max(tried, key=lambda line: line["accuracy"])
            known[title] = {"settings": best["settings"], "held_out_accuracy": best["accuracy"], "tried": tried}
            write_study(out, "settings", known, None)  # a run that is broken off goes on from there
    return known


def test(cases: Sequence[Case], folder: Path, chosen: Mapping[str, Any], seeds: Sequence[int]) -> list[dict[str, Any]]:
    lines = []
    for title, name, own in cases:
        settings = {**own, **chosen[SAME_AS.get(title, title)]["settings"]}
        found = [run_apart(folder, name, "test", seed, settings) for seed in (seeds if name in RANDOM else seeds[:1])]
        joined = {key: [one[key] for one in found] for key in found[0]}
        lines.append({"title": title, "name": name, "settings": settings, **joined})
        print(f"{title:<40} {[round(100 * a, 2) for a in joined['accuracy']]} {joined['seconds']} s", flush=True)
    return lines


def markdown(found: Sequence[Mapping[str, Any]]) -> str:
    parts = [
        "Made by `python benchmarks/wide_text.py test --out results/wide`, with the settings of `settings.json`, which\n"
        "`python benchmarks/wide_text.py choose` found on held-out training texts with 2^18 columns. Accuracy on the test\n"
        "texts: mean ± standard deviation over seeds (ℓ1 logistic regression has nothing random). Weights: those that are\n"
        "not 0; DEEP R and the fixed wiring have K in all, biases not counted. Columns: those with a weight. CPU seconds of\n"
        "the training, one thread. Peak: of the whole process, read by another one; in brackets without what Python, the\n"
        "libraries and the training rows need before anything is learnt.\n"
    ]
    head = ("contender", "test accuracy", "weights", "columns", "CPU seconds", "peak memory")
    for table in found:
        shape = table["shape"]
        parts.append(
            f"**{shape['columns']:,} columns**, of which {shape['occurring']:,} occur in {shape['rows']:,} training texts"
            f" ({shape['nonzeros']:,} nonzeros); {shape['test_rows']:,} test texts, {shape['classes']} classes\n"
        )
        rows = []
        for line in table["lines"]:
            base = table["base_bytes"]["torch" if line["name"] == DEEP_R else "plain"]
            peak = statistics.mean(line["peak_bytes"])
            memory = f"{peak / 1e6:.0f} MB ({max(0.0, peak - base) / 1e6:.0f})"
            accuracy = plus_minus(statistics.mean(line["accuracy"]), deviation(line["accuracy"]), 2, "%")
            counts = (f"{statistics.mean(line[key]):,.0f}" for key in ("weights", "inputs"))
            rows.append([line["title"], accuracy, *counts, f"{statistics.mean(line['seconds']):.1f}", memory])
        parts.append(markdown_table(head, rows, numbers=range(1, 6)) + "\n")
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("Texts over a million hashed columns.", "choose", "test", "words")
    parser.add_argument("--texts", choices=("debian", "stdlib"), default="debian", help="the data set")
    parser.add_argument("--bits", nargs="*", type=int, default=BITS, help="columns of the test, as powers of 2")
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--tries", type=int, help="settings to choose from, the first ones of each grid; all by default")
    parser.add_argument("--only", nargs="*", help="cases whose title has one of these words")
    options = parser.parse_args(arguments)
    cases = [case for case in CASES if not options.only or any(word in case[0] for word in options.only)]
    texts = data.load_texts(options.texts)
    chosen = read_json(options.out, "settings") or {}
    if options.what == "words":
        title, _, own = next(case for case in CASES if case[0] == _MIDDLE)
        settings = {**own, **chosen.get(title, {}).get("settings", {})}
        options.out.mkdir(parents=True, exist_ok=True)
        drawn = wide_text_words.draw_words(texts, vectorizer(max(options.bits)), title, settings)
        (options.out / "words.svg").write_text(drawn, encoding="utf-8")
        return 0
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        if options.what == "choose":
            write_texts(texts, min(options.bits), folder)
            write_study(options.out, "settings", choose(cases, folder, chosen, options.out, options.tries), None)
            return 0
        known = {table["shape"]["columns"]: table for table in read_json(options.out, "table") or []}
        for bits in options.bits:
            shape = write_texts(texts, bits, folder)
            apart = {kind: run_apart(folder, "nothing", "test", 0, {"torch": kind == "torch"}) for kind in ("torch", "plain")}
            lines = {line["title"]: line for line in known.get(2**bits, {}).get("lines", [])}
            lines |= {line["title"]: line for line in test(cases, folder, chosen, options.seeds)}
            ordered = [lines[title] for title, *_ in CASES if title in lines]
            base = {kind: found["peak_bytes"] for kind, found in apart.items()}
            known[2**bits] = {"shape": shape, "texts": texts.name, "base_bytes": base, "lines": ordered}
            tables = [known[columns] for columns in sorted(known)]
            write_study(options.out, "table", tables, markdown(tables))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
