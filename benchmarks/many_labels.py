"""131,072 labels: a sparse last layer with drawn labels and with all of them, beside a dense one with all.

    python benchmarks/many_labels.py --out results/wide/labels

Each row is ``examples/many_labels.py`` in a process of its own; its highest resident memory is what the system says about it
when it has ended, torch and the text (29 MB) included. The text is read once before, in another process. All rows have the
same hidden layer, batches, steps, optimiser and schedule, and each of them all learning rates; time is the CPU time of a
training step, on one thread. The first row is such a process that loads the text, imports torch and trains nothing.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirebound_lab.tables import markdown_table

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "many_labels.py"
READ = "import many_labels as m, numpy, sys; [numpy.save(f'{sys.argv[1]}/{n}.npy', w) for n, w in m.read_text()._asdict().items()]"
LOAD = "import many_labels, numpy, sys; text = [numpy.load(f'{sys.argv[1]}/{n}.npy') for n in ('train', 'test')]"
CONTENDERS = {
    "sparse, 1,024 drawn labels": ["--samples", "1024"],
    "sparse, all labels": ["--samples", "0"],
    "dense, all labels": ["--dense"],
}


def run(command: Sequence[str]) -> tuple[str, float]:
    """What a Python process prints, and its highest resident memory in MB, as the system counted it."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    paths = [str(EXAMPLE.parent), str(EXAMPLE.parent.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([sys.executable, *command], env=variables, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise OSError(f"{' '.join(command[:2])} ended with status {process.returncode}")
        output.seek(0)
        return output.read(), usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def measure(name: str, text: Path, steps: int, tested: int, seed: int, lr: float, quick: bool) -> dict[str, Any]:
    size = ["--quick"] if quick else ["--text", str(text), "--steps", str(steps), "--tested", str(tested)]
    printed, peak = run([str(EXAMPLE), *size, "--seed", str(seed), "--lr", str(lr), *CONTENDERS[name]])
    print(f"{name}, seed {seed}, learning rate {lr}\n{printed}", flush=True)
    return {"name": name, "seed": seed, **json.loads(printed.splitlines()[-1]), "peak_MB": peak}


def table(idle: float, rows: Sequence[dict[str, Any]]) -> str:
    lines = [["imports and text alone", "", "", f"{idle:.0f}", "", "", "", ""]]
    for row in rows:
        right = [f"{100 * row[name]:.1f} %" for name in ("first", "first_five")]
        memory = [f"{row['peak_MB']:.0f}", f"{row['peak_MB'] - idle:.0f}"]
        learned = [f"{row['ms_of_a_step']:.1f}", f"{row['loss']:.3f}", " / ".join(right)]
        lines.append([row["name"], f"{row['lr']:g}", str(row["seed"]), *memory, *learned])
    guess = rows[0]
    most = f"{100 * guess['guess_first']:.1f} % / {100 * guess['guess_first_five']:.1f} %"
    lines.append(["the most frequent words", "", "", "", "", "", "", most])
    heads = ["last layer", "learning rate", "seed", "peak RSS, MB", "above the first row", "CPU ms a step", "loss over all labels", "first / among five"]
    return markdown_table(heads, lines)


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["name"], row["lr"], row["seed"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Very many labels: memory, time and accuracy.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tested", type=int, default=4096, help="examples on which each is tested, before and after")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.003, 0.01], help="learning rates")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="rows to run; others stay as they are")
    parser.add_argument("--quick", action="store_true", help="a small text and few labels, to see that it runs")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "labels.json"
    known = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        idle = 0.0
        if not options.quick:
            run(["-c", READ, folder])
            _, idle = run(["-c", LOAD, folder])
        for name, lr, seed in itertools.product(options.only, options.rates, options.seeds):
            found = measure(name, Path(folder), options.steps, options.tested, seed, lr, options.quick)
            known = [row for row in known if key(row) != key(found)] + [found]
            known.sort(key=lambda row: (list(CONTENDERS).index(row["name"]), row["lr"], row["seed"]))
            content = json.dumps({"idle_MB": idle, "rows": known}, indent=1)
            file.write_text(content + "\n", encoding="utf-8")
            what = f"{found['labels']:,} labels, {found['steps']:,} steps of 256 examples; tested on other files."
            text = f"{what}\n\n{table(idle, known)}\n"
            (options.out / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
