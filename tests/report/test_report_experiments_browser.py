"""Experiments in a real browser: read-outs, switches, links, narrow screens, contrast, print."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_helpers import find, press, show

from wirebound_lab.report import find_sources, write_report

Make = Callable[..., Path]
FIGURE = "#experiment-fig1a .chart"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(experiment_writer: Make, run_writer: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiments")
    experiment_writer(folder / "fig1a")
    experiment_writer(folder / "fig2", name="fig2", title="Another figure", charts=None)
    run_writer(folder / "runs/mnist/deep-r-0.01-s0", epochs=3, steps_per_epoch=400)
    sources = find_sources([folder])
    return write_report(sources.runs, folder / "page.html", sources.experiments)


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    show(browser, page, 1200)
    yield browser
    assert browser.get_log("browser") == []


def test_readout_tells_the_spread_the_label_and_the_rule(opened: Any) -> None:
    svg, readout = find(opened, f"{FIGURE} svg"), find(opened, f"{FIGURE} .readout")
    press(opened, svg, "\ue011")  # the home key
    assert "connectivity 0.3" in readout.text
    assert "94.6\u202f% ± 0.3" in readout.text
    assert "98.35" in readout.text, "the rule has a value everywhere"
    press(opened, svg, "\ue014", "\ue014")  # right, right
    assert "read off Figure 1A" in readout.text
    assert "connectivity 1.3" in readout.text


def test_a_rule_spans_the_width(opened: Any) -> None:
    ends = opened.execute_script(f"""
        const box = (selector) => document.querySelector(selector).getBBox();
        const rule = box("{FIGURE} g.series.dashed .line"), axis = box("{FIGURE} line.axis:last-of-type");
        return [rule.x - axis.x, rule.width - axis.width];
    """)
    assert ends == [0, 0]


def test_a_method_is_switched_by_keyboard(opened: Any) -> None:
    button = find(opened, f"{FIGURE} .legend button[data-series='2']")
    series = find(opened, f"{FIGURE} g.series[data-series='2']")
    press(opened, button, " ")
    assert button.get_attribute("aria-pressed") == "false"
    assert not series.is_displayed()
    press(opened, find(opened, f"{FIGURE} svg"), "\ue011")
    assert "shrinkage" not in find(opened, f"{FIGURE} .readout").text
    press(opened, button, " ")
    assert series.is_displayed()


def test_contents_and_run_links(opened: Any) -> None:
    link = find(opened, "nav a[href='#experiment-fig2']")
    press(opened, link, "\ue007")
    top = opened.execute_script("return document.querySelector('#experiment-fig2').getBoundingClientRect().top")
    bottom = opened.execute_script("return document.documentElement.scrollHeight - scrollY - innerHeight")
    assert abs(top) < 40 or bottom < 1
    run = find(opened, "#run-1")
    assert run.get_attribute("open") is None
    press(opened, find(opened, "#experiment-fig1a a[href='#run-1']"), "\ue007")
    assert run.get_attribute("open") is not None


@pytest.mark.parametrize("width", [320, 375, 768])
def test_no_sideways_scrolling(browser: Any, page: Path, width: int) -> None:
    show(browser, page, width)
    browser.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_findings_need_no_scrolling_on_a_phone(browser: Any, page: Path) -> None:
    show(browser, page, 375)
    sizes = browser.execute_script("""
        const box = document.querySelector(".findings .scroll"), cell = box.querySelector("td[data-label=Here]");
        return [box.scrollWidth - box.clientWidth, getComputedStyle(cell, "::before").content, cell.innerText];
    """)
    assert sizes == [0, '"Here: "', "96.18 ± 0.24\u202f%"]
    show(browser, page, 1200)
    assert find(browser, ".findings thead").is_displayed()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_in_a_grid_can_be_read(browser: Any, page: Path, scheme: str) -> None:
    """4.5 : 1 on every colour of the ramp."""
    show(browser, page, 1200, scheme)
    ratios = browser.execute_script("""
        const cell = document.querySelector(".heat td");
        const light = (text) => {
          const [r, g, b] = text.match(/\\d+/g).map((c) => Number(c) / 255)
            .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        return [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map((level) => {
          cell.className = "number q" + level;
          const style = getComputedStyle(cell), a = light(style.color), b = light(style.backgroundColor);
          return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        });
    """)
    assert min(ratios) >= 4.5, ratios


def test_print(browser: Any, page: Path) -> None:
    """Everything that is folded on a screen is on paper, in its own colours on white."""
    show(browser, page, 1200, "dark")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert find(browser, "#experiment-fig1a .settings").is_displayed()
    assert find(browser, "#run-1 .charts").is_displayed()
    assert find(browser, "body").value_of_css_property("background-color") == "rgba(255, 255, 255, 1)"
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert find(browser, "#run-1").get_attribute("open") is None


def test_without_scripts(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, page, 1200)
        assert find(browser, f"{FIGURE} .whisker").is_displayed()
        assert find(browser, ".findings .badge.good").text == "✓ holds"
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
