"""Thinning, axes, charts and maps."""

from __future__ import annotations

import math

import pytest

from wirebound_lab.report.charts import Chart, Series, draw
from wirebound_lab.report.heatmap import arrange, draw_pictures
from wirebound_lab.report.markup import data_block, fragment, linear_axis, log_axis, tag
from wirebound_lab.report.records import Picture
from wirebound_lab.report.run_charts import binned, thin
from wirebound_lab.report.wording import duration, share, size, tick


def test_thin_keeps_ends_and_extremes() -> None:
    x = list(range(10_000))
    y: list[float | None] = [math.sin(value / 50) for value in x]
    y[1234], y[8765] = 99.0, -99.0
    short_x, short_y = thin(x, y, 400)
    assert len(short_x) <= 402
    assert short_x[0] == 0
    assert short_x[-1] == 9999
    assert 99.0 in short_y
    assert -99.0 in short_y
    assert short_x == sorted(short_x)


def test_thin_keeps_gaps_and_short_curves() -> None:
    assert thin([1, 2], [None, 3.0], 400) == ([1, 2], [None, 3.0])
    y: list[float | None] = [None] * 1000
    assert set(thin(list(range(1000)), y, 10)[1]) == {None}


def test_binned_is_a_weighted_mean_inside_its_band() -> None:
    series = binned("a", range(4), [0.0, 3.0, 5.0, None], [2, 1, 1, 1], 2)
    assert series.y == [1.0, 5.0]
    assert series.low == [0.0, 5.0]
    assert series.high == [3.0, 5.0]


@pytest.mark.parametrize(
    "values", [[0.0, 1.0], [0.87, 0.965], [2662, 2662], [-3.0, -3.0], [0, 0], [1e-9, 2e-9], [2660, 2662]]
)
def test_linear_axis_holds_its_values(values: list[float]) -> None:
    axis = linear_axis(values, 0, 100)
    assert axis.low <= min(values)
    assert max(values) <= axis.high
    assert axis.low < axis.high
    assert 2 <= len(axis.ticks) <= 9


@pytest.mark.parametrize("values", [[1.0], [0.12, 2.3], [1e-8, 1e3], [3e-6, 4e-6], [0.0, 5.0], [0.003, 1.0]])
def test_log_axis_holds_its_values(values: list[float]) -> None:
    axis = log_axis(values, 0, 100)
    above = [value for value in values if value > 0]
    assert axis.low <= min(above) * 1.0001
    assert max(above) <= axis.high * 1.0001
    assert 2 <= len(axis.ticks) <= 7
    assert all(axis.low <= value <= axis.high * 1.0001 for value in axis.ticks)


def test_a_gap_breaks_the_line() -> None:
    figure = draw(Chart("c", "T", "S", "x", [Series("a", [1, 2, 3, 4], [1.0, 2.0, None, 4.0])]))
    line = figure.split('class="line"')[0].rsplit('d="', 1)[1]
    assert line.count("M") == 2
    assert "nan" not in figure.lower()


def test_zero_on_a_logarithmic_axis_is_a_gap() -> None:
    figure = draw(Chart("c", "T", "S", "x", [Series("a", [1, 2, 3], [1.0, 0.0, 4.0])], log_y=True))
    assert figure.split('class="line"')[0].rsplit('d="', 1)[1].count("M") == 2


@pytest.mark.parametrize("series", [[], [Series("a", [], [])], [Series("a", [1, 2], [None, None])]])
def test_nothing_to_draw_says_so(series: list[Series]) -> None:
    assert "Nothing was recorded" in draw(Chart("c", "T", "S", "x", series))


def test_one_point_is_drawn() -> None:
    assert "<circle" in draw(
        Chart("c", "T", "S", "epoch", [Series("a", [1], [0.5], marks=True)], unit="percent")
    )


def test_chart_has_a_title_and_a_description() -> None:
    figure = draw(Chart("c", "T", "S", "x", [Series("a", [1, 2], [1.0, 2.0])]))
    assert '<title id="c-title">T</title>' in figure
    assert "from 1 to 2" in figure


def test_arrange() -> None:
    assert arrange([1, 2, 3, 4, 5, 6], (2, 3)) == ([1, 2, 3, 4, 5, 6], 2, 3, 1)
    assert arrange([1, 2, 3], ()) == ([1, 2, 3], 1, 3, 1)  # no picture
    assert arrange([1, 2, 3], (2, 2)) == ([1, 2, 3], 1, 3, 1)  # a shape that does not fit
    assert arrange([1, 2, 3, 4, 10, 20, 30, 40], (2, 2, 2))[0] == [11, 22, 33, 44]  # channels first
    assert arrange(list(range(5 * 5 * 3)), (5, 5, 3))[0][:2] == [0 + 1 + 2, 3 + 4 + 5]  # channels last
    cells, rows, columns, side = arrange([1] * (128 * 100), (128, 100))
    assert (rows, columns, side) == (64, 50, 2)
    assert sum(cells) == 128 * 100
    assert cells[0] == 4
    cells, rows, columns, _ = arrange([1] * 1000, (1000,))
    assert rows * columns == len(cells)
    assert sum(cells) == 1000


def test_pictures_of_no_connections_and_of_one_epoch() -> None:
    assert "<svg" in draw_pictures([Picture(0, (0, 0, 0, 0), (2, 2))], "m")
    assert "Difference" in draw_pictures([Picture(e, (0, 0, 0, 0), (2, 2)) for e in (0, 1)], "m")


def test_markup_escapes() -> None:
    assert tag("p", "<b>&", title='"x"') == '<p title="&quot;x&quot;">&lt;b&gt;&amp;</p>'
    assert fragment(tag("i"), None, "<") == "<i></i>&lt;"
    assert "</script><b>" not in data_block({"a": "</script><b>"}, "x")
    with pytest.raises(ValueError, match="JSON"):
        data_block(float("nan"), "x")


def test_wording() -> None:
    assert share(0.013).startswith("1.30")
    assert share(1.0).startswith("100")
    assert share(0.00012).startswith("0.0120")
    assert size(999).startswith("999")
    assert size(10_648).startswith("10.6")
    assert "GB" in size(5e12)
    assert [tick(value) for value in (0, 60_000, 2_000, 0.5, 1e-6, 2.5e6)] == [
        "0",
        "60k",
        "2,000",
        "0.5",
        "1e\u22126",
        "2.5M",
    ]
    assert duration(5).startswith("5.0")
    assert "min" in duration(200)
    assert "h" in duration(10_000)
