"""Whether runs of two versions of wirebound are the same, bit for bit: accuracies, counts, positions and θ.

    PYTHONPATH=OLD/src python benchmarks/same_bits.py run --out old
    PYTHONPATH=NEW/src python benchmarks/same_bits.py run --out new
    python benchmarks/same_bits.py compare old new

The runs are those of the demo, three of ``results/mnist`` (seeds 0, 1 and 2 of three rows), runs of the module path with
Adam and of SET, and one quick figure of the paper. Names of arrays may differ between versions (``RENAMED``).
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

RUNS = {
    "demo": ["demo"],
    "paper": ["train", "--connectivity", "0.013", "--seed", "0"],
    "recommended": ["train", "--preset", "recommended", "--connectivity", "0.01", "--seed", "1"],
    "fixed": ["train", "--method", "fixed", "--connectivity", "0.01", "--epochs", "20", "--seed", "2"],
    "adam": [
        *("train", "--data", "digits", "--connectivity", "0.1", "--optimizer", "adam", "--lr", "0.01", "--epochs", "2"),
        *("--engine", "module"),
    ],
    "set": ["train", "--data", "digits", "--method", "set", "--connectivity", "0.1", "--epochs", "2"],
}
FIGURE = "fig1b"
RENAMED = {"code": "packed_rows"}
COUNTED = ("test_accuracy", "test_loss", "min_active", "max_active", "steps")


def run(out: Path) -> None:
    command = [sys.executable, "-m", "wirebound"]
    for name, arguments in RUNS.items():
        subprocess.run([*command, *arguments, "--out", str(out / name)], check=True, stdout=subprocess.DEVNULL)
    figure = ["reproduce", FIGURE, "--quick", "--out", str(out / "figure")]
    subprocess.run([*command, *figure], check=True, stdout=subprocess.DEVNULL)


def arrays(model: Path) -> dict[str, np.ndarray]:
    found = {}
    for name, array in load_file(model).items():
        parts = [RENAMED.get(part, part) for part in name.replace("model/", "").split(".")]
        found[".".join(parts)] = array
    return found


def differences(old: Path, new: Path) -> list[str]:
    """What differs between two run folders."""
    found = []
    one, other = (json.loads((folder / "summary.json").read_text()) for folder in (old, new))
    found += [f"{key}: {one.get(key)} → {other.get(key)}" for key in COUNTED if one.get(key) != other.get(key)]
    mine, theirs = arrays(old / "model.safetensors"), arrays(new / "model.safetensors")
    if set(mine) != set(theirs):
        found.append(f"arrays: {sorted(set(mine) ^ set(theirs))}")
    found += [name for name in set(mine) & set(theirs) if not np.array_equal(mine[name], theirs[name])]
    return found


def compare(old: Path, new: Path) -> int:
    failed = 0
    folders = [path.parent for path in sorted(old.rglob("model.safetensors"))]
    for folder in folders:
        name = folder.relative_to(old)
        wrong = differences(folder, new / name)
        accuracy = json.loads((folder / "summary.json").read_text()).get("test_accuracy")
        print(f"{name!s:<50} accuracy {accuracy}  {'same bits' if not wrong else 'DIFFERS: ' + '; '.join(wrong)}")
        failed += bool(wrong)
    print(f"{len(folders) - failed} of {len(folders)} runs are the same")
    return 1 if failed or not folders else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    runs = parts.add_parser("run", help="do the runs with the wirebound that is imported")
    runs.add_argument("--out", type=Path, required=True)
    both = parts.add_parser("compare", help="compare what two versions left")
    both.add_argument("old", type=Path)
    both.add_argument("new", type=Path)
    options = parser.parse_args()
    if options.part == "run":
        run(options.out)
        return 0
    return compare(options.old, options.new)


if __name__ == "__main__":
    sys.exit(main())
