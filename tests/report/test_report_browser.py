"""The page in a real browser, opened from disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_helpers import find, press, show

from wirebound_lab.report import write_report

MakeRun = Callable[..., Path]


pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(run_writer: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    one = run_writer(folder / "one", epochs=5, steps_per_epoch=2000, paper=True)
    two = run_writer(
        folder / "two", epochs=5, steps_per_epoch=2000, connectivity=0.05, method="fixed", final=0.9
    )
    return write_report([one, two], folder / "page.html")


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    """The page on a desktop screen; afterwards the console must be empty."""
    show(browser, page, 1200)
    yield browser
    assert browser.get_log("browser") == []


def test_loads_nothing_but_itself(opened: Any, page: Path) -> None:
    messages = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [
        item["params"]["request"]["url"] for item in messages if item["method"] == "Network.requestWillBeSent"
    ]
    assert set(asked) <= {page.as_uri()}
    assert "plain" not in find(opened, "html").get_attribute("class").split(), "the script ran"


def test_slider_redraws_the_map(opened: Any) -> None:
    def drawn() -> str:
        return str(find(opened, "#run-1 .moving .cells").get_attribute("innerHTML"))

    slider = find(opened, "#run-1 .timeline input")
    last = drawn()
    assert find(opened, "#run-1 .epoch-shown").text.startswith("After epoch 5")
    press(opened, slider, "\ue012")  # the left arrow key
    before = drawn()
    assert before != last
    assert find(opened, "#run-1 .epoch-shown").text.startswith("After epoch 4")
    press(opened, slider, "\ue011")  # the home key
    assert drawn() not in (before, last)
    assert find(opened, "#run-1 .epoch-shown").text.startswith("Before training")
    assert str(slider.get_attribute("aria-valuetext")).startswith("Before training")


def test_slider_moves_strips_and_ages(opened: Any) -> None:
    def drawn() -> list[str]:
        parts = opened.find_elements("css selector", "#run-1 .strip .bars, #run-1 .ages .age")
        return [str(part.get_attribute("d")) for part in parts]

    slider = find(opened, "#run-1 .timeline input")
    last = drawn()
    assert len(last) == 3 * 2 + 3
    words = find(opened, "#run-1 .age-words").text
    assert "are there since the start" in words
    press(opened, slider, "\ue012", "\ue012")
    before = drawn()
    assert all(one != two for one, two in zip(before, last, strict=True))
    assert find(opened, "#run-1 .age-words").text != words
    press(opened, slider, "\ue011")
    assert find(opened, "#run-1 .age-words").text == "Before training all connections are new."
    outlines = [part.get_attribute("d") for part in opened.find_elements("css selector", "#run-1 .strip .before")]
    press(opened, slider, "\ue010")
    assert [part.get_attribute("d") for part in opened.find_elements("css selector", "#run-1 .strip .before")] == outlines


def test_script_and_python_draw_the_same_bars(browser: Any, page: Path) -> None:
    """With and without scripts the last epoch has the same strips and ages, to the rounding of their numbers."""
    import re

    def drawn() -> list[list[float]]:
        parts = browser.find_elements("css selector", "#run-1 .strip .bars, #run-1 .ages .age")
        return [[float(number) for number in re.findall(r"-?[\d.]+", str(part.get_attribute("d")))] for part in parts]

    show(browser, page, 1200)
    scripted = drawn()
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, page, 1200)
        plain = drawn()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert len(plain) == len(scripted) == 9
    for one, two in zip(plain, scripted, strict=True):
        assert one == pytest.approx(two, abs=0.2)


def test_a_strip_is_read_by_keyboard_and_pointer(opened: Any) -> None:
    from selenium.webdriver import ActionChains

    strip, words = find(opened, "#run-1 .strip"), find(opened, "#run-1 .strip-words")
    plain = words.text
    assert "a bar is 7 inputs" in plain
    press(opened, strip, "\ue011")
    assert words.text.startswith("inputs 1–7: ")
    press(opened, strip, "\ue014")
    assert words.text.startswith("inputs 8–14: ")
    assert "at first" in words.text
    press(opened, find(opened, "#run-1 .timeline input"), "\ue010")
    assert words.text == plain, "it lost the focus"
    ActionChains(opened).move_to_element(strip).perform()
    assert "on average" in words.text


def test_script_and_python_draw_the_same_map(opened: Any) -> None:
    """Level by level, the still picture of the last epoch and the moving one cover the same area."""
    area = """
        const squares = (path) => [...path.getAttribute("d").matchAll(/h(\\d+)v1/g)]
          .reduce((sum, match) => sum + Number(match[1]), 0);
        const cover = (selector) => [...document.querySelectorAll(selector)]
          .map((path) => [path.getAttribute("class"), squares(path)]).sort();
        return [cover("#run-1 .moving .cells path"), cover("#run-1 .stills figure:nth-child(2) .cells path")];
    """
    moving, still = opened.execute_script(area)
    assert moving == still
    assert len(moving) > 3


def test_play_moves_on_and_stops(opened: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    play = find(opened, "#run-1 .play")
    press(opened, play, " ")
    assert play.text == "Pause"
    slider = find(opened, "#run-1 .timeline input")
    WebDriverWait(opened, 10).until(lambda _: slider.get_property("value") == "5" and play.text == "Play")


def test_legend_switches_a_series(opened: Any) -> None:
    figure = "#run-1 .charts .chart:first-child"
    button = find(opened, f"{figure} .legend button[data-series='0']")
    series = find(opened, f"{figure} g.series[data-series='0']")
    assert series.is_displayed()
    assert button.get_attribute("aria-pressed") == "true"
    press(opened, button, " ")
    assert series.value_of_css_property("display") == "none"
    assert button.get_attribute("aria-pressed") == "false"
    press(opened, button, "\ue007")  # the enter key
    assert series.value_of_css_property("display") != "none"
    assert button.get_attribute("aria-pressed") == "true"


def test_readout_by_pointer_and_keyboard(opened: Any) -> None:
    from selenium.webdriver import ActionChains

    svg = find(opened, "#run-1 .chart svg")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", svg)
    ActionChains(opened).move_to_element(svg).perform()
    readout = find(opened, "#run-1 .chart .readout")
    assert readout.is_displayed()
    assert "epoch 3" in readout.text
    assert "%" in readout.text
    assert "paper" in readout.text
    ActionChains(opened).move_to_element(find(opened, "h1")).perform()
    assert not readout.is_displayed()
    press(opened, svg, "\ue010")  # the end key
    assert "epoch 5" in readout.text
    press(opened, svg, "\ue012")
    assert "epoch 4" in readout.text
    press(opened, svg, "\ue00c")  # the escape key
    assert not readout.is_displayed()


def test_table_sorts(opened: Any) -> None:
    def runs() -> list[str]:
        return [cell.text for cell in opened.find_elements("css selector", ".sortable tbody th")]

    head = next(
        item for item in opened.find_elements("css selector", ".sortable thead th") if "Accuracy" in item.text
    )
    button = head.find_element("css selector", "button")
    orders = []
    for _ in range(3):
        press(opened, button, " ")
        orders.append((head.get_attribute("aria-sort"), runs()))
    assert orders[0] == ("descending", ["one", "two"])
    assert orders[1] == ("ascending", ["two", "one"])
    assert orders[2] == (None, ["one", "two"])


def test_link_opens_a_folded_run(browser: Any, make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run(f"run{seed}", epochs=1, seed=seed, steps_per_epoch=200) for seed in range(4)]
    show(browser, write_report(runs, tmp_path / "page.html"), 1200)
    run = find(browser, "#run-3")
    assert run.get_attribute("open") is None
    find(browser, ".sortable a[href='#run-3']").click()
    assert run.get_attribute("open") is not None
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [320, 375, 768])
def test_no_sideways_scrolling(browser: Any, page: Path, width: int) -> None:
    show(browser, page, width)
    browser.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert browser.execute_script("return window.innerWidth") == width
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(browser: Any, page: Path, scheme: str) -> None:
    """Texts reach 4.5 : 1 on what they stand on, curves 3 : 1."""
    show(browser, page, 1200, scheme)
    ratios = browser.execute_script("""
        const style = getComputedStyle(document.documentElement);
        const light = (name) => {
          const hex = style.getPropertyValue(name).trim();
          const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
            .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
        const texts = [["--ink", "--panel"], ["--quiet", "--panel"], ["--quiet", "--faint"],
          ["--quiet", "--page"],
          ["--accent", "--panel"], ["--accent", "--faint"], ["--good", "--good-back"], ["--good", "--faint"],
          ["--bad", "--bad-back"], ["--note", "--note-back"]];
        const curves = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => ["--s" + i, "--panel"]);
        return [texts.map((pair) => ratio(...pair)), curves.map((pair) => ratio(...pair)),
          getComputedStyle(document.body).backgroundColor];
    """)
    assert min(ratios[0]) >= 4.5
    assert min(ratios[1]) >= 3.0
    assert (ratios[2] == "rgb(16, 19, 22)") == (scheme == "dark")


def test_print_shows_the_still_pictures(browser: Any, page: Path) -> None:
    show(browser, page, 1200, "dark")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not find(browser, ".moving").is_displayed()
    assert not find(browser, ".timeline").is_displayed()
    assert find(browser, ".stills").is_displayed()
    assert find(browser, ".strip .bars").is_displayed()
    assert find(browser, ".ages .age").is_displayed()
    assert find(browser, "body").value_of_css_property("background-color") == "rgba(255, 255, 255, 1)"


def test_without_scripts(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, page, 1200)
        assert not find(browser, ".moving").is_displayed()
        assert find(browser, ".stills").is_displayed()
        assert find(browser, "#run-1 .chart svg .line").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
