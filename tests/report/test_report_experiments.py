"""Experiments: what is read from their files, what is said about wrong ones, and what the page shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wirebound_lab.cli import main
from wirebound_lab.report import ReportError, find_sources, read_experiment, write_report
from wirebound_lab.report.experiment_section import draw_grid, line_colors, lines_chart
from wirebound_lab.report.experiments import GridChart, LinesChart, UnknownChart
from wirebound_lab.report.page import render

Make = Callable[..., Path]


def page_of(folder: Path, out: Path) -> str:
    sources = find_sources([folder])
    return write_report(sources.runs, out, sources.experiments).read_text(encoding="utf-8")


def chart(**changes: Any) -> dict[str, Any]:
    plain = {"kind": "lines", "series": [{"name": "a", "points": [{"x": 1, "y": 2}]}]}
    return {**plain, **changes}


def test_everything_of_the_file_is_on_the_page(make_experiment: Make, tmp_path: Path) -> None:
    make_experiment()
    page = page_of(tmp_path / "results", tmp_path / "page.html")
    for text in (
        "MNIST: accuracy against connectivity", "Figure 1A · fig1a", "DEEP R reaches higher accuracies",
        "Scale: fitted · 10 epochs at batch 10, as in the paper · 3 seeds", "Test accuracy against connectivity",
        "DEEP R in the paper", "read off Figure 1A", "Pruning: accuracy over its settings", "96.50\u202f%",
        "Accuracy by method", "94.6 ± 0.3", "Means over 3 seeds", "✓ holds", "✗ does not hold", "? not decided",
        "Higher learning rates and 40 epochs", "wirebound reproduce fig1a", "<dt>lr</dt><dd>0.05</dd>",
        "2 run folders not kept", "test: paired, 90\u202f% interval above 0",
    ):  # fmt: skip
        assert text in page, text
    assert "Contents" not in page, "one experiment needs none"


def test_several_have_contents_in_natural_order(make_experiment: Make, tmp_path: Path) -> None:
    for name in ("fig10", "fig2", "fig1a"):
        make_experiment(name, title=f"Title of {name}")
    page = page_of(tmp_path / "results", tmp_path / "page.html")
    links = re.findall(r'<a href="#(experiment-\w+)"', page)
    assert links == ["experiment-fig1a", "experiment-fig2", "experiment-fig10"]
    assert all(page.count(f'id="{link}"') == 1 for link in links)
    assert "3 of 9 claims hold here, 3 do not, 3 not decided." in page


def test_only_the_runs_that_experiments_name(make_experiment: Make, run_writer: Make, tmp_path: Path) -> None:
    make_experiment()
    run_writer(tmp_path / "results/runs/mnist/deep-r-0.01-s0", epochs=1, steps_per_epoch=200)
    run_writer(tmp_path / "results/runs/mnist/deep-r-0.01-s1", epochs=1, steps_per_epoch=200)
    sources = find_sources([tmp_path / "results"])
    assert [run.name for run in sources.runs] == ["deep-r-0.01-s0"]
    page = page_of(tmp_path / "results", tmp_path / "page.html")
    assert page.count('class="run"') == 1
    assert '<a href="#run-1">runs/mnist/deep-r-0.01-s0</a>' in page
    assert "1 run folder not kept" in page
    only_runs = find_sources([tmp_path / "results/runs"])
    assert not only_runs.experiments
    assert len(only_runs.runs) == 2
    both = find_sources([tmp_path / "results/fig1a", tmp_path / "results/runs/mnist/deep-r-0.01-s1"])
    assert [run.name for run in both.runs] == ["deep-r-0.01-s0", "deep-r-0.01-s1"]


def test_the_command(make_experiment: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_experiment()
    assert main(["report", str(tmp_path / "results"), "--out", str(tmp_path / "page.html")]) == 0
    assert "page.html" in capsys.readouterr().out
    assert "Reproduction report" in (tmp_path / "page.html").read_text()


def test_a_bare_experiment(tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_text('{"format": 1, "name": "bare"}')
    assert "bare" in page_of(tmp_path, tmp_path / "page.html")


def test_texts_are_escaped(make_experiment: Make, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    plain = json.loads(make_experiment().read_text())

    def spoil(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: spoil(item) for key, item in value.items()}
        if isinstance(value, list):
            return [spoil(item) for item in value]
        kept = ("lines", "grid", "log", "linear", "line", "points", "rule", "band")
        return value + evil if isinstance(value, str) and value not in kept else value

    make_experiment(**spoil({**plain, "settings": {evil: {evil: evil}}}))
    page = page_of(tmp_path / "results", tmp_path / "page.html")
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": None}, r"format \(=None\) must be 1.*missing"),
        ({"format": 2}, r"format \(=2\) must be 1"),
        ({"name": None}, r"name \(=None\) must be a text"),
        ({"charts": {}}, r"charts \(=\{\}\) must be a list"),
        ({"charts": [3]}, r"charts\[0\] must be an object, not a int"),
        ({"charts": [chart(x={"scale": "cubic"})]}, r"charts\[0\]\.x\.scale \(='cubic'\) must be linear or log"),
        ({"charts": [chart(series=[{"style": "dots"}])]}, r"charts\[0\]\.series\[0\]\.style \(='dots'\) must be one of"),
        ({"charts": [chart(series=[{"points": [{"y": 1}]}])]}, r"series\[0\]\.points\[0\]\.x \(=None\) must be a number"),
        ({"charts": [chart(series=[{"points": [{"x": 1, "y": "2"}]}])]}, r"points\[0\]\.y \(='2'\) must be a number or null"),
        ({"charts": [{"kind": "grid", "columns": [1, 2], "rows": [1], "cells": [[1]]}]}, r"charts\[0\]\.cells .*1 lists of 2"),
        ({"charts": [{"kind": "grid", "columns": [1], "rows": [1], "cells": [["x"]]}]}, r"charts\[0\]\.cells .*numbers or null"),
        ({"tables": [{"columns": ["a"], "rows": [["b", "c"]]}]}, r"tables\[0\]\.rows\[0\] must be a list of 1 cells"),
        ({"findings": [{"claim": "x", "holds": "yes"}]}, r"findings\[0\]\.holds \(='yes'\) must be true, false or null"),
        ({"findings": [{}]}, r"findings\[0\]\.claim"),
        ({"runs": ["../../etc"]}, r"runs\[0\] \(='../../etc'\) must be a path below"),
        ({"settings": [1]}, r"settings \(=\[1\]\) must be an object"),
        ({"seeds": "three"}, r"seeds \(='three'\) must be a whole number"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(make_experiment: Make, changes: dict[str, Any], message: str) -> None:
    path = make_experiment(**changes)
    with pytest.raises(ReportError, match=message) as caught:
        read_experiment(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "[" * 100_000])
def test_no_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "experiment.json").write_text(text)
    with pytest.raises(ReportError, match=r"experiment\.json must hold one JSON object"):
        find_sources([tmp_path])


def test_a_chart_of_tomorrow_is_said(make_experiment: Make, tmp_path: Path) -> None:
    make_experiment(charts=[{"kind": "spiral", "title": "Round"}])
    assert "cannot draw charts of the kind &#x27;spiral&#x27;" in page_of(tmp_path, tmp_path / "page.html")


def test_lines(make_experiment: Make) -> None:
    first, second = read_experiment(make_experiment()).charts
    assert isinstance(first, LinesChart)
    assert isinstance(second, GridChart)
    drawn = lines_chart(first, "x")
    kinds = [(s.name, s.line, s.marks, s.whiskers, s.rule, s.spread) for s in drawn.series]
    assert kinds == [
        ("DEEP R", True, True, True, False, True),
        ("soft-DEEP R", True, False, False, False, True),
        ("ℓ1-shrinkage", True, True, True, False, True),
        ("DEEP R in the paper", False, True, False, False, False),
        ("dense", True, False, False, True, False),
    ]
    assert [series.color for series in drawn.series] == [0, 1, 3, 0, 7], "a method has one colour"
    assert drawn.log_x
    assert not drawn.log_y


def test_a_long_line_has_a_band_instead_of_whiskers(make_experiment: Make) -> None:
    points = [{"x": x, "y": 0.5, "low": 0.4, "high": 0.6} for x in range(31)]
    for number, whiskers in ((30, True), (31, False)):
        series = [{"name": "a", "points": points[:number]}]
        (read,) = read_experiment(make_experiment(charts=[chart(series=series)])).charts
        assert isinstance(read, LinesChart)
        (curve,) = lines_chart(read, "x").series
        assert (curve.whiskers, curve.marks, curve.spread) == (whiskers, whiskers, True)


def test_shares_stay_between_nothing_and_all(make_experiment: Make, tmp_path: Path) -> None:
    points = [{"x": 1, "y": 0.05, "low": -0.1, "high": 0.2}, {"x": 2, "y": 0.9, "low": 0.7, "high": 1.1}]
    make_experiment(charts=[chart(y={"percent": True}, series=[{"name": "a", "points": points}])])
    page = page_of(tmp_path, tmp_path / "page.html")
    assert ">100%</text>" in page
    assert ">0%</text>" in page
    assert ">−20%</text>" not in page
    assert ">120%</text>" not in page


def test_colours_do_not_clash(make_experiment: Make) -> None:
    names = ["RigL", "constant rate", "a", "b", "deep-r"]
    series = [{"name": name, "points": [{"x": 1, "y": 1}]} for name in names]
    (read,) = read_experiment(make_experiment(charts=[chart(series=series)])).charts
    assert isinstance(read, LinesChart)
    colors = line_colors(read.lines)
    assert len(set(colors)) == 5
    assert colors[4] == 0


def test_logarithms_lose_no_point_in_silence(make_experiment: Make) -> None:
    points = [{"x": x, "y": y} for x, y in ((0, 1), (0.1, 1), (1, 0), (1, 2))]
    read = read_experiment(
        make_experiment(charts=[chart(x={"scale": "log"}, y={"scale": "log"}, series=[{"name": "a", "points": points}])])
    )
    assert isinstance(read.charts[0], LinesChart)
    drawn = lines_chart(read.charts[0], "x")
    assert [len(series.x) for series in drawn.series] == [2]
    assert "2 point(s) at or below zero" in drawn.subtitle


def test_only_rules_and_nothing_at_all(make_experiment: Make, tmp_path: Path) -> None:
    rule = {"name": "dense", "style": "rule", "points": [{"x": None, "y": 0.98, "low": 0.97, "high": 0.99}]}
    make_experiment(charts=[chart(series=[rule]), chart(series=[]), {"kind": "grid"}])
    page = page_of(tmp_path, tmp_path / "page.html")
    assert "dense: 0.98 throughout." in page
    assert page.count("Nothing was recorded for this chart.") == 2


def test_a_grid_is_a_coloured_table(make_experiment: Make) -> None:
    grid = read_experiment(make_experiment()).charts[1]
    assert isinstance(grid, GridChart)
    drawn = draw_grid(grid)
    assert 'class="number q10">96.50\u202f%' in drawn
    assert 'class="number q1">60.00\u202f%' in drawn
    assert 'class="number">–' in drawn
    assert drawn.count("<td") == 18


def test_unknown_charts_are_kept_apart(make_experiment: Make) -> None:
    assert read_experiment(make_experiment(charts=[{"kind": "pie"}])).charts == (UnknownChart("Chart", "pie"),)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, by the keys that lead there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, item in inner for place in _places(item, (*path, key))]


def test_any_value_at_any_place_gives_a_page_or_an_error(make_experiment: Make, tmp_path: Path) -> None:
    """The file comes from others: whatever stands where, the reader may only refuse it by name or draw it."""
    strange = [None, True, -1, 0, 1e308, -1e308, 5e-324, float("inf"), float("nan"), "", "x", [], [[]], {}, {"a": []}]
    plain = json.loads(make_experiment().read_text())
    for chart in plain["charts"][:1]:
        chart["series"] = [{**series, "points": series["points"][:2]} for series in chart["series"]]
    path = tmp_path / "odd" / "experiment.json"
    path.parent.mkdir()
    errors, pages = [], 0
    for index, place in enumerate(_places(plain)[1:]):
        for offset in range(3):  # three of the values for each place, all of them in turn
            copy = json.loads(json.dumps(plain))
            holder = copy
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = strange[(3 * index + offset) % len(strange)]
            path.write_text(json.dumps(copy))
            try:
                page = render([], [read_experiment(path)])
            except ReportError as error:
                errors.append(str(error))
                continue
            numbers = re.findall(r'\b(?:d|x|y|x1|x2|y1|y2|cx|cy)="([^"]*)"', page)
            assert not re.search(r"nan|inf", "".join(numbers)), place
            pages += 1
    assert all(str(path) in error for error in errors)
    assert len(errors) > 50
    assert pages > 50


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    docs = Path(__file__).resolve().parents[2] / "docs" / "report.md"
    (example,) = re.findall(r"```json\n(.*?)```", docs.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "experiment.json").write_text(example)
    page = page_of(tmp_path, tmp_path / "page.html")
    assert "words for the read-out" in page
    assert "1 of 1 claim" not in page, "one experiment needs no contents"
