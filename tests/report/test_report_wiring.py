"""The wiring over training: what is read of it, rows and columns, ages, births and deaths."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wirebound_lab.report import write_report
from wirebound_lab.report.records import Picture, Records, read_picture
from wirebound_lab.report.runs import Run
from wirebound_lab.report.wiring_view import bars, draw_ages, draw_marginals, draw_wiring, outline, survivors_chart

MakeRun = Callable[..., Path]


def record(epoch: int = 1, **changes: Any) -> dict[str, Any]:
    layer = {
        "name": "a", "shape": [2, 5], "rows": [3, 4], "row_group": 1, "columns": [2, 4, 1], "column_group": 2,
    }  # fmt: skip
    ages = {"from": [0, 1][: epoch + 1], "layers": [[3, 4]] if epoch else [[7]], "since_start": [4 if epoch else 7]}
    plain = {"kind": "wiring", "epoch": epoch, "inputs": [1, 1, 2, 2, 1], "shape": [5], "layers": [layer], "ages": ages}
    return {**plain, **changes}


def picture(epoch: int = 1, **changes: Any) -> Picture:
    found = read_picture(record(epoch, **changes))
    assert found is not None
    return found


def run_of(pictures: list[Picture]) -> Run:
    return Run(Path("x"), {}, {}, Records(pictures=pictures))


def test_reads_a_record() -> None:
    found = picture()
    (layer,) = found.layers
    assert layer.rows.means() == [3.0, 4.0]
    assert layer.columns.sizes() == [2, 2, 1], "the last group is smaller"
    assert layer.columns.means() == [1.0, 2.0, 1.0]
    assert found.ages is not None
    assert found.ages.total == 7


@pytest.mark.parametrize(
    "layer",
    [
        {}, {"shape": [2]}, {"shape": [2, 5], "rows": [1, 2]}, {"shape": [2, 5], "rows": [1, 2, 3], "columns": [1] * 5},
        {"shape": [2, 5], "rows": [1, 2], "columns": [1] * 3, "column_group": 3}, {"shape": [0, 0], "rows": [], "columns": []},
        {"shape": [2, 5], "rows": [1, 2], "row_group": 0, "columns": [1] * 5},
    ],
)  # fmt: skip
def test_layers_that_do_not_fit_are_left_out(layer: dict[str, Any]) -> None:
    found = picture(layers=[record()["layers"][0], layer])
    assert found.layers == ()
    assert found.inputs == (1, 1, 2, 2, 1)


@pytest.mark.parametrize(
    "ages",
    [
        None, 3, {}, {"from": [0], "layers": [[1, 2]], "since_start": [1]}, {"from": [1], "layers": [[1]], "since_start": [1]},
        {"from": [0, 0], "layers": [[1, 2]], "since_start": [1]}, {"from": [0], "layers": [[1]], "since_start": []},
    ],
)  # fmt: skip
def test_ages_that_do_not_fit_are_left_out(ages: object) -> None:
    assert picture(ages=ages).ages is None


def test_bars_and_outline() -> None:
    assert bars([0, 1, 2], 2) == "M1 100v-50h1v50zM2 100v-100h1v100z"
    assert outline([0, 1, 2], 2) == "M0 100V100h1V50h1V0h1"


def test_strips_of_all_layers() -> None:
    drawn = draw_marginals([picture(0), picture(1)], ["first"]) or ""
    assert drawn.count('class="strip"') == 2
    assert "first: 5 \u2192 2" in drawn
    assert "5 inputs, 0 to 2 connections each \u00b7 a bar is 2 inputs" in drawn
    assert draw_marginals([picture(0, layers=[]), picture(1)], []) is None
    assert draw_marginals([picture(0, layers=[])], []) is None


def test_the_words_about_ages() -> None:
    ages = {"from": [0, 1, 2, 3], "layers": [[10, 20, 30, 40], [0, 0, 0, 100]], "since_start": [40, 100]}
    drawn = draw_ages([picture(0), picture(3, ages=ages)], []) or ""
    assert (
        "Of 200 connections, 5.0\u202f% were not there at the end of the epoch before, 70.0\u202f% are there since the "
        "start; half are at least 3 epochs old." in drawn
    )
    assert "layer 2" in drawn
    assert drawn.count('class="age ') == 2
    assert draw_ages([picture(0)], []) is None, "before training there is nothing to see"


def test_what_is_left_of_the_first_wiring() -> None:
    drawn = survivors_chart([picture(0), picture(1)], ["first"], "x") or ""
    assert "first: from 100 % to 57.14 %" in drawn
    assert survivors_chart([picture(1)], [], "x") is None


def test_many_epochs_are_thinned() -> None:
    pictures = [Picture(epoch, (1,) * 4096, (64, 64)) for epoch in range(300)]
    page = draw_wiring(run_of(pictures), "m") or ""
    assert len(page) < 500_000
    assert "Before training" in page
    assert "After epoch 299" in page


def test_a_run_of_an_older_version(make_run: MakeRun, tmp_path: Path) -> None:
    """No layers, ages and deaths in its records: the picture of the inputs is there, the rest is not."""
    run = make_run("old", epochs=2, steps_per_epoch=400)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        for key in ("layers", "ages", "deaths"):
            line.pop(key, None)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report([run], tmp_path / "page.html").read_text()
    assert "Where the first layer looks" in page
    body = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    for text in ("by column and by row", "Age of connections", "Connections that died", "Left of the first wiring"):
        assert text not in body


def test_births_and_deaths(make_run: MakeRun, tmp_path: Path) -> None:
    page = write_report([make_run(epochs=2, steps_per_epoch=400)], tmp_path / "page.html").read_text()
    assert "Newborn connections" in page
    assert "Connections that died" in page
    still = write_report([make_run("still", epochs=2, method="fixed")], tmp_path / "page.html").read_text()
    assert "No connection was born." in still
    assert "No connection was lost." in still
