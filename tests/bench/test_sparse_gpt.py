"""The benchmark of the sparse GPT: runs watched from outside, and what is written about them."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from wirebound_lab.bench.loss_curves import draw
from wirebound_lab.bench.watched import run_watched
from wirebound_lab.run import train
from wirebound_lab.run.config import make_config

SCRIPT = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "sparse_gpt.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_sparse_gpt", SCRIPT)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_is_seen_from_outside_and_kept(tmp_path: Path) -> None:
    code = "import time; x = bytearray(60_000_000); time.sleep(0.4); raise SystemExit({})"
    records = {name: tmp_path / f"{name}.json" for name in ("good", "bad")}
    commands = {"good": [sys.executable, "-c", code.format(0)], "bad": [sys.executable, "-c", "raise SystemExit(1)"]}
    assert run_watched({n: (commands[n], records[n]) for n in commands}, 2, {}, poll=0.05) == ["bad"]
    assert json.loads(records["good"].read_text())["peak_bytes"] > 60_000_000


def test_every_run_has_a_title_and_settings_that_hold(script: ModuleType) -> None:
    assert set(script.TITLES) == set(script.RUNS)
    for name in script.RUNS:
        make_config(script.settings_of(name, quick=False))


def test_table_and_curves_of_a_tiny_run(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(make_config(script.settings_of("deep-r-256", quick=True)), tmp_path / "runs" / "deep-r-256")
    script.write(tmp_path, tmp_path / "runs")
    (told,) = json.loads((tmp_path / "runs.json").read_text())
    assert told["min_active"] == told["max_active"] == told["budget"]
    assert "DEEP R" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "small.svg").read_text().startswith("<svg")
    assert "nats a byte" in capsys.readouterr().out


@pytest.mark.slow
def test_where_the_time_of_a_step_goes(script: ModuleType, tmp_path: Path) -> None:
    assert script.main(["--out", str(tmp_path), "--quick", "--profile", "--only", "deep-r-256"]) == 0
    parts = json.loads((tmp_path / "profile.json").read_text())["deep-r-256"]
    assert parts["sparse products"] > 0


def test_curves_are_drawn_in_two_panels() -> None:
    text = draw("A loss", {"steps": {"one": [(1, 3.0), (2, 2.0)], "two": [(1, 3.5), (2, 1.0)]}, "seconds": {"one": [(9, 3.0)]}})
    assert text.count('class="curve') == 5  # three curves, two names
