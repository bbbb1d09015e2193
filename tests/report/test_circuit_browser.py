"""The walk through a network, in a real browser, opened from disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browser_helpers import find, press, show

import wirebound as wb
from wirebound_lab.circuit.page import write_circuit_page
from wirebound_lab.gpt import sparse_gpt

pytestmark = pytest.mark.browser

SHAPE = {"vocab": 5, "context": 4, "width": 8, "depth": 2, "heads": 2, "mlp_factor": 1}
ENTER = "\ue007"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A run folder with a network of 200 connections."""
    folder = tmp_path_factory.mktemp("circuit") / "run"
    folder.mkdir()
    network = sparse_gpt(200, **SHAPE)
    wb.save(folder / "model.safetensors", model=network)
    (folder / "config.json").write_text(json.dumps({"method": "deep-r", "data": "quotes", "heads": 2}))
    (folder / "summary.json").write_text(json.dumps({"token_names": ["a", "<b>", " ", "'", '"'], "possible": 984}))
    (folder / "metrics.jsonl").write_text("")
    return network, folder


@pytest.fixture(scope="module")
def page(model: tuple[Any, Path]) -> Path:
    return write_circuit_page(model[1], model[1] / "page.html")


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    show(browser, page, 1200)
    yield browser
    assert browser.get_log("browser") == []


def go_to(browser: Any, name: str) -> None:
    box = find(browser, "#jump")
    box.clear()
    press(browser, box, name, ENTER)
    assert find(browser, "#where").text.startswith(name), find(browser, "#where").text


def rows(browser: Any, table: str) -> list[list[str]]:
    script = "return [...document.querySelectorAll(arguments[0])].map((row) => [...row.cells].map((cell) => cell.textContent))"
    return browser.execute_script(script, f"#{table} tbody tr")


def test_lists_are_the_rows_and_columns_of_the_matrices(opened: Any, model: tuple[Any, Path]) -> None:
    (wiring,) = wb.wirings(model[0])
    dense = {layer.name: wiring.layer_dense(number) for number, layer in enumerate(wiring.layers)}
    go_to(opened, "residual channel 3")
    into, out = rows(opened, "into"), rows(opened, "from")
    writers = ["embed", "place", *(f"blocks.{b}.{name}" for b in range(2) for name in ("attention.out", "mlp.down"))]
    readers = ["head", *(f"blocks.{b}.{name}" for b in range(2) for name in ("attention.query_key_value", "mlp.up"))]
    written = torch.cat([dense[name][3] for name in writers])
    read = torch.cat([dense[name][:, 3] for name in readers])
    for found, weights in ((into, written), (out, read)):
        expected = sorted((abs(float(weight)) for weight in weights if weight), reverse=True)
        assert [abs(float(row[1].replace("\u2212", "-"))) for row in found] == pytest.approx(expected, rel=6e-3)
    assert len(opened.find_elements("css selector", "#drawing .link")) == min(12, len(into)) + min(12, len(out))


def test_walk_by_clicks_and_back(opened: Any) -> None:
    first = find(opened, "#where").text
    assert first.startswith("next token")
    neighbour = opened.find_elements("css selector", "#drawing .pill.channel")[0]
    name = neighbour.find_element("css selector", ".main").text
    neighbour.click()
    assert find(opened, "#where").text == f"residual {name}"
    find(opened, "#into a").click()
    third = find(opened, "#where").text
    assert third not in (first, f"residual {name}")
    find(opened, "#back").click()
    find(opened, "#back").click()
    assert find(opened, "#where").text == first
    assert find(opened, "#back").get_attribute("disabled")
    find(opened, "#forward").click()
    find(opened, "#forward").click()
    assert find(opened, "#where").text == third
    assert find(opened, "#forward").get_attribute("disabled")


def test_a_head_and_two_steps(opened: Any) -> None:
    go_to(opened, "block 1 head 0")
    assert {row[2] for row in rows(opened, "into")} == {"blocks.1.attention.query_key_value"}
    assert {row[2] for row in rows(opened, "from")} == {"blocks.1.attention.out"}
    before = len(opened.find_elements("css selector", "#drawing .pill"))
    opened.execute_script("const box = arguments[0]; box.value = '2'; box.dispatchEvent(new Event('change'))", find(opened, "#depth"))
    assert len(opened.find_elements("css selector", "#drawing .pill")) > before
    # What leads to block 1 through a channel was written before it: by tokens, places or block 0.
    titles = [node.get_attribute("textContent") for node in opened.find_elements("css selector", "#drawing .link title")]
    assert not [title for title in titles if "(blocks.1.mlp.down)" in title]


def test_search_offers_nodes_and_names_are_text(opened: Any) -> None:
    box = find(opened, "#jump")
    press(opened, box, "token <b>")
    opened.execute_async_script("const done = arguments[arguments.length - 1]; setTimeout(done, 200)")
    offered = [link.text for link in opened.find_elements("css selector", "#found a")]
    assert offered == ["token <b>", "next token <b>"]
    box.clear()
    press(opened, box, "no such node", ENTER)
    assert find(opened, "#where").text.startswith("next token")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_circuit_is_drawn_whole_and_marked(browser: Any, model: tuple[Any, Path], tmp_path: Path, scheme: str) -> None:
    circuit = {"connections": [0, 1, 60, 199], "budget": 200, "whole": 1.0, "kept": 0.995, "zeroed": 0.5, "question": "which <mark>"}
    page = write_circuit_page(model[1], tmp_path / "marked.html", most=150, circuit=circuit)
    show(browser, page, 390, scheme)
    assert "150 of 200 connections" in find(browser, "#left-out").text
    marked = int(find(browser, "#where").text.split()[2])
    assert marked == len(browser.find_elements("css selector", "#drawing .link"))
    assert 1 <= marked <= 4
    find(browser, "#drawing .pill").click()
    assert find(browser, "#drawing .halo")
    find(browser, "#whole").click()
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), "only the drawing scrolls"
    assert browser.get_log("browser") == []
