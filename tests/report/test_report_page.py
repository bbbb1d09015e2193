"""The page as a file: whole, self-contained, escaped, and of a bearable size."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from wirebound_lab.report import ReportError, write_report

MakeRun = Callable[..., Path]


LOADING = {"src", "srcset", "href", "xlink:href", "action", "data", "poster", "formaction", "background"}
EVIL = "</script><img src=x onerror=alert(1)>\"'&<b>"


class Reader(HTMLParser):
    """Collects elements and what they point at, and insists on closed elements."""

    VOID = frozenset({"meta", "input", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.tags: list[str] = []
        self.stack: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.targets += [value or "" for key, value in attrs if key in LOADING]
        self.ids += [value or "" for key, value in attrs if key == "id"]
        assert not [key for key, _ in attrs if key.startswith("on")]
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.stack == [], "every element is closed"
    assert len(set(reader.ids)) == len(reader.ids), "every id is unique"
    return reader


def page_of(*folders: Path, out: Path) -> str:
    return write_report(folders, out).read_text(encoding="utf-8")


def test_one_run(small_run: Path, tmp_path: Path) -> None:
    page = page_of(small_run, out=tmp_path / "page.html")
    for text in (
        "DEEP R on MNIST",
        "Active = budget, every step",
        "budget 2,662; fewest 2,662, most 2,662 active",
    ):
        assert text in page
    for text in (
        "Beside the paper",
        "Newborn connections",
        "Memory",
        "All settings",
        "Before training",
        "After epoch 3",
    ):
        assert text in page
    assert "runs compared" not in page


def test_self_contained(small_run: Path, make_run: MakeRun, tmp_path: Path) -> None:
    page = page_of(small_run, make_run("b", epochs=2, connectivity=0.05), out=tmp_path / "page.html")
    reader = read(page)
    assert reader.targets
    assert all(target.startswith("#") for target in reader.targets)
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(reader.tags)
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(|@font-face|import\(|fetch\(", page)
    assert "default-src 'none'" in unescape(page)


def test_texts_from_files_are_escaped(make_run: MakeRun, tmp_path: Path) -> None:
    evil = {
        "method": EVIL, "data": EVIL, "seed": EVIL, "path": EVIL, EVIL: EVIL, "versions": {EVIL: EVIL},
        "layers": [{"name": EVIL, "shape": [1, 2], "possible": 2, "initial": 1, "final": 1}],
        "ledger": [{"part": EVIL, "bytes": 3, "note": EVIL}],
        "paper": {"claim": EVIL, "accuracy": 0.5, "connectivity": 0.1, "source": EVIL},
    }  # fmt: skip
    runs = [make_run(name, epochs=2, summary=evil, config={EVIL: [EVIL]}) for name in ("<i>a&", "b")]
    page = page_of(*runs, out=tmp_path / "page.html")
    assert "<img" not in page
    assert "<i>a" not in page
    assert page.count("</script>") == page.count("<script")
    assert "img" not in read(page).tags


def test_size_of_a_twenty_epoch_run(make_run: MakeRun, tmp_path: Path) -> None:
    page = write_report([make_run(epochs=20)], tmp_path / "page.html")
    assert page.stat().st_size < 1_000_000


def test_same_folders_same_bytes(small_run: Path, tmp_path: Path) -> None:
    assert page_of(small_run, out=tmp_path / "a.html") == page_of(small_run, out=tmp_path / "b.html")


def test_comparison(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [
        make_run(f"run{index}", epochs=2, connectivity=value)
        for index, value in enumerate((0.01, 0.02, 0.05))
    ]
    page = page_of(*runs, out=tmp_path / "page.html")
    assert "3 runs compared" in page
    assert "Accuracy against connectivity" in page
    assert page.count('class="run" open') == 3
    again = page_of(*runs, make_run("run3", epochs=2, connectivity=0.1), out=tmp_path / "page.html")
    assert again.count('class="run"') == 4
    assert 'class="run" open' not in again


def test_same_settings_are_told_apart_by_folder(make_run: MakeRun, tmp_path: Path) -> None:
    page = page_of(make_run("a/run", epochs=2), make_run("b/run", epochs=2), out=tmp_path / "page.html")
    assert "a/run" in page
    assert "b/run" in page
    assert "Accuracy against connectivity" not in page


def test_validation_is_not_called_test(make_run: MakeRun, tmp_path: Path) -> None:
    page = page_of(make_run(epochs=2, summary={"evaluated_on": "validation"}), out=tmp_path / "page.html")
    assert "Validation accuracy" in page
    assert "Test accuracy" not in page


def test_broken_budget_is_said(make_run: MakeRun, tmp_path: Path) -> None:
    page = page_of(make_run(epochs=2, overshoot=7), out=tmp_path / "page.html")
    assert "✗ budget not kept" in page
    assert "budget 2,662; fewest 2,662, most 2,669 active" in page


def test_interrupted_run(small_run: Path, make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("cut", epochs=2, summary={"test_accuracy": None, "seconds": None, "steps": None})
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"kind":"epo')
    page = page_of(run, out=tmp_path / "page.html")
    assert "is cut and was skipped" in page
    assert "after epoch 2, not finished" in page


def test_bare_run(make_run: MakeRun, tmp_path: Path) -> None:
    """Nothing but the three files: no metrics, no settings, an empty summary."""
    run = make_run("bare", epochs=1)
    for name, text in (("config.json", "{}"), ("summary.json", "{}"), ("metrics.jsonl", "")):
        (run / name).write_text(text)
    page = page_of(run, out=tmp_path / "page.html")
    read(page)
    assert "unknown method" in page
    assert "Nothing was recorded" in page
    read(page_of(run, make_run("other", epochs=1), out=tmp_path / "page.html"))


def test_not_finite_numbers_do_not_reach_the_page(make_run: MakeRun, tmp_path: Path) -> None:
    nan = float("nan")
    run = make_run("nan", epochs=2, summary={"test_accuracy": nan, "seconds": nan, "connectivity": nan})
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(
        re.sub(r'"(loss|train_loss|test_accuracy)": [0-9.e-]+', r'"\1": NaN', text)
    )
    page = page_of(run, out=tmp_path / "page.html")
    drawn = "".join(re.findall(r"<svg.*?</svg>|<script type=.*?</script>", page, re.DOTALL))
    assert "nan" not in drawn.lower()
    assert "not a finite number" in page


def test_no_folders(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="at least one"):
        write_report([], tmp_path / "page.html")


def test_out_is_a_folder(small_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="must be a file"):
        write_report([small_run], tmp_path)


def test_parents_are_made_and_the_path_returned(small_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "er" / "page.html"
    assert write_report([small_run], out) == out
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_failed_write_leaves_the_old_page(
    small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    out = tmp_path / "pages" / "page.html"
    out.parent.mkdir()
    out.write_text("the old page")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="disk full"):
        write_report([small_run], out)
    assert out.read_text() == "the old page"
    assert list(out.parent.iterdir()) == [out]


def test_a_bad_folder_leaves_the_old_page(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("the old page")
    with pytest.raises(ReportError):
        write_report([tmp_path / "nowhere"], tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "the old page"


@pytest.mark.parametrize("place", ["file/page.html", f"{'a' * 300}/page.html", f"{'a' * 300}.html"])
def test_a_place_that_cannot_hold_a_page_is_named(small_run: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ReportError, match=r"out \(=.*\) cannot be written: (File exists|File name too long)"):
        write_report([small_run], tmp_path / place)
    # A long name that the file system takes is as good as another.
    assert write_report([small_run], tmp_path / ("b" * 255)).exists()
