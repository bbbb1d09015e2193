"""``wirebound reproduce`` as a user runs it."""

import json
from pathlib import Path

import pytest

from wirebound_lab.cli import main
from wirebound_lab.paper.reproduce import FIGURES
from wirebound_lab.report import find_runs, write_report


def test_a_figure_from_the_command_line(tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    assert main(["reproduce", "theory", "--quick", "--resume", *out]) == 2
    assert "holds no run of theory at this scale to resume" in capsys.readouterr().err
    assert main(["reproduce", "theory", "--quick", *out]) == 0
    printed = capsys.readouterr().out
    assert "2 runs, 0 of them finished before" in printed
    assert "not decided: the formal chain" in printed
    assert "RESULTS.md" in printed
    assert f"page: {tmp_path / 'out' / 'page.html'}" in printed
    assert "The stationary law" in (tmp_path / "out" / "page.html").read_text()
    assert main(["reproduce", "theory", "--quick", "--resume", *out]) == 0
    assert "2 runs, 2 of them finished before" in capsys.readouterr().out
    results = (tmp_path / "out" / "RESULTS.md").read_text()
    assert "| fig6 | " in results
    assert "| seeds | test | verdict | command |" in results
    assert "| below the limit | not decided |" in results
    assert results.count("| not run |") == len(FIGURES) - 1


def test_a_run_of_other_settings_is_refused(tmp_path, capsys):
    main(["reproduce", "theory", "--quick", "--out", str(tmp_path)])
    path = next(Path(tmp_path).glob("runs/theory/*/summary.json"))
    changed = json.loads(path.read_text())
    changed["settings"]["chains"] = 7
    path.write_text(json.dumps(changed))
    capsys.readouterr()
    assert main(["reproduce", "theory", "--quick", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "holds another run than this figure needs" in said
    assert "next: another --out" in said


def test_its_runs_are_shown_by_the_report(tmp_path):
    assert main(["reproduce", "fig4", "--quick", "--out", str(tmp_path)]) == 0
    page = write_report(find_runs([tmp_path / "runs"]), tmp_path / "page.html")
    assert "deep-r-e6-s0" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig1"], "figure (='fig1') is unknown; did you mean"),
        (["fig1a", "--seeds", "0"], "seeds (=0) must be >= 1"),
        (["fig1a", "--jobs", "-1"], "jobs (=-1) must be >= 1"),
        ([], "give names of figures or --all"),
        (["fig1a", "--all"], "give names of figures or --all"),
    ],
)
def test_wrong_input(tmp_path, arguments, message, capsys):
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_list(capsys):
    assert main(["reproduce", "--list"]) == 0
    printed = capsys.readouterr().out
    for figure in FIGURES.values():
        assert f"{figure.name:<8} {figure.title} ({figure.paper})" in printed
        assert figure.claim in printed


def test_a_figure_without_its_data_does_not_keep_the_others(tmp_path, monkeypatch, capsys):
    from wirebound_lab.cli.main import main

    monkeypatch.setenv("WIREBOUND_SPEECH", "timit")  # licensed: never there
    monkeypatch.setenv("WIREBOUND_DATA", str(tmp_path))
    assert main(["reproduce", "fig2", "theory", "--quick", "--out", str(tmp_path / "out")]) == 1
    assert "not run for lack of data: fig2" in capsys.readouterr().out
    assert (tmp_path / "out" / "theory" / "experiment.json").exists()
    assert main(["reproduce", "fig2", "--quick", "--out", str(tmp_path / "out")]) == 2
