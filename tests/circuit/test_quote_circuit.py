"""The whole study on one seed: a trained network has a circuit, and ablation says that it is the one."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "quote_circuit.py"


@pytest.mark.slow
def test_the_circuit_does_the_task_and_nothing_else_does(tmp_path):
    spec = importlib.util.spec_from_file_location("quote_circuit", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (result,) = module.main(["--out", str(tmp_path), "--marks", "quotes", "--seeds", "0"])
    assert result["budget_kept"]
    assert len(result["connections"]) < 0.05 * result["budget"]
    assert min(result["whole"], result["kept"]) >= 0.99
    assert result["zeroed"] <= 0.55
    assert result["others"] >= 0.95
    assert (tmp_path / "quotes.html").stat().st_size < 300_000
    assert "| quotes | 0 | 800 |" in (tmp_path / "table.md").read_text(encoding="utf-8")
