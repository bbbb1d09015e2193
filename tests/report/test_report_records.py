"""metrics.jsonl as killed, resumed and diverged runs leave it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wirebound_lab.report.records import number, read_records, whole


def write(path: Path, *lines: Any, end: str = "\n") -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)
    return path


def window(first: int, last: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "window",
        "step_from": first,
        "step_to": last,
        "loss": 1.0,
        "active_min": 5,
        "active_max": 5,
        **more,
    }


def test_cut_last_line_is_skipped_with_a_note(tmp_path: Path) -> None:
    path = write(tmp_path / "m", window(1, 10), '{"kind":"window","step_fr', end="")
    records = read_records(path)
    assert [item.step_to for item in records.windows] == [10]
    assert len(records.notes) == 1
    assert "line 2" in records.notes[0]
    assert "cut" in records.notes[0]


def test_cut_inside_a_character(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(json.dumps(window(1, 10)).encode() + b'\n{"kind":"x","text":"\xe2\x84')
    assert len(read_records(path).windows) == 1


def test_unreadable_line_in_the_middle_is_counted(tmp_path: Path) -> None:
    records = read_records(write(tmp_path / "m", window(1, 10), '{"kind":', "[1, 2]", window(11, 20)))
    assert len(records.windows) == 2
    assert records.notes == ["2 unreadable line(s) of metrics.jsonl were skipped (line 2, 3)."]


def test_unknown_kinds_and_keys_are_ignored(tmp_path: Path) -> None:
    records = read_records(
        write(tmp_path / "m", {"kind": "new"}, {"no": "kind"}, window(1, 10, extra={"a": 1}))
    )
    assert len(records.windows) == 1
    assert not records.notes


def test_records_without_their_place_are_ignored(tmp_path: Path) -> None:
    records = read_records(
        write(tmp_path / "m", {"kind": "epoch"}, window(10, 1), {"kind": "wiring", "epoch": 1})
    )
    assert not records.epochs
    assert not records.windows
    assert not records.pictures


def test_not_finite_numbers_become_gaps_with_a_note(tmp_path: Path) -> None:
    epoch = '{"kind":"epoch","epoch":1,"step":20,"train_loss":NaN,"test_loss":Infinity,"test_accuracy":0.1}'
    records = read_records(write(tmp_path / "m", window(1, 10), window(11, 20, loss=float("nan")), epoch))
    assert [item.loss for item in records.windows] == [1.0, None]
    assert records.epochs[0].train_loss is None
    assert records.epochs[0].test_loss is None
    assert any("not a finite number in 1 " in note for note in records.notes)


def test_a_resumed_run_replaces_what_it_repeats(tmp_path: Path) -> None:
    lines = [window(1, 10), window(11, 20), window(21, 30), window(11, 20, loss=2.0)]
    first, again = ({"kind": "epoch", "epoch": 1, "step": 20, "test_accuracy": value} for value in (0.1, 0.2))
    records = read_records(write(tmp_path / "m", *lines, first, again))
    assert [(item.step_to, item.loss) for item in records.windows] == [(10, 1.0), (20, 2.0)]
    assert [item.test_accuracy for item in records.epochs] == [0.2]


def test_empty_file_has_a_note(tmp_path: Path) -> None:
    assert read_records(write(tmp_path / "m", end="")).notes == [
        "metrics.jsonl is empty: there is nothing to plot yet."
    ]


def test_values() -> None:
    assert number(True) is None
    assert number("1") is None
    assert number(10**400) is None
    assert number(3) == 3.0
    assert whole(3.5) is None
    assert whole(3.0) == 3
