"""What studies share: their command line, their runs, and how they write tables."""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wirebound_lab.paper.job import Outcomes, Summary, TrainJob, run_jobs
from wirebound_lab.run import RunConfig
from wirebound_lab.tables import deviation


def study_parser(description: str, *what: str, jobs: bool = False) -> argparse.ArgumentParser:
    """Options of every study; ``what``: its steps, of which the last looks at the test set."""
    parser = argparse.ArgumentParser(description=description)
    if what:
        parser.add_argument("what", choices=what, help="compare settings on held-out data, or run the test")
    parser.add_argument("--out", type=Path, required=True)
    if jobs:
        parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each")
    return parser


def run_configs(configs: Mapping[str, RunConfig], runs: Path, workers: int) -> Outcomes:
    """One run for each name; finished ones are not repeated."""
    return run_jobs([TrainJob(name, config) for name, config in configs.items()], runs, workers, print)


def accuracy_line(summaries: Sequence[Summary]) -> dict[str, Any]:
    """Accuracy in percent over seeds, and how it was reached."""
    accuracies = [100 * summary["test_accuracy"] for summary in summaries]
    cpu = [seconds for summary in summaries if (seconds := summary.get("cpu_seconds")) is not None]  # of runs in one sitting
    return {
        "accuracy_percent": [round(accuracy, 2) for accuracy in accuracies],
        "mean": round(statistics.mean(accuracies), 3),
        "spread": round(deviation(accuracies) or 0.0, 3),
        "budget_kept": all(s["budget"] is None or s["min_active"] == s["max_active"] == s["budget"] for s in summaries),
        "seconds_each": round(statistics.mean(summary["seconds"] for summary in summaries), 1),
        "cpu_seconds_each": round(statistics.mean(cpu), 1) if cpu else None,
        **{key: summaries[0][key] for key in ("path", "evaluated_on")},
    }


def read_json(out: Path, name: str) -> Any:
    """What ``write_study`` left, None if nothing."""
    file = out / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def write_study(out: Path, name: str, found: Any, text: str | None) -> None:
    """NAME.json, and NAME.md beside it if there is a text."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if text is not None:
        (out / f"{name}.md").write_text(text, encoding="utf-8")
    print(f"table: {out / name}.{'json' if text is None else 'md'}")
