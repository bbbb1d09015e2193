"""The experiment of the stationary law, on its smallest case: what it writes."""

import json

import pytest

from wirebound_lab.paper import theory, theory_study


def test_tables_and_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(theory, "CASES", {"asymmetric": theory.CASES["asymmetric"]})
    monkeypatch.setattr(theory, "STEP_SIZES", (0.04,))
    assert theory_study.main(["--out", str(tmp_path), "--chains", "256", "--span", "20"]) == 0
    found = json.loads((tmp_path / "theory.json").read_text())
    (case,) = found["cases"]
    (step,) = case["steps"]
    assert len(case["exact"]["sets"]) == 15
    for law in (case["exact"]["formal"], case["exact"]["strict"], *step["frequency"].values()):
        assert sum(law) == pytest.approx(1)
    compared = step["architectures"]
    assert compared["formal chain, formal law"]["tv"] < compared["DEEP R, formal law"]["tv"]
    assert compared["DEEP R, strict law"]["tv"] < compared["DEEP R, formal law"]["tv"]
    text = (tmp_path / "theory.md").read_text()
    assert f"{compared['DEEP R, strict law']['tv']:.4f}" in text
    figure = (tmp_path / "theory.svg").read_text()
    assert figure.count("<rect") == 2 + 2 * 15
    assert figure.count("<circle") == 4 + 4 * 15
