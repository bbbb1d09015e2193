"""Errors of the command end with what to do next."""

import errno

import pytest

from wirebound_lab.cli import main
from wirebound_lab.cli.main import next_step


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["train", "--data", "digits", "--connectivity", "2"], "`wirebound train --help` explains"),
        (["report", "nowhere"], "name folders that `wirebound train --out DIR` has finished"),
        (["train", "--data", "mnist", "--data-path", "nowhere", "--connectivity", "0.1"], "wirebound data"),
        (["bench", "--only", "nothing"], "`wirebound bench --help` explains"),
        (["train", "--data", "digits", "--connectivity", "0.1", "--lr", "1e25", "--epochs", "1"], "--on-nan skip"),
    ],
)
def test_the_last_line_says_what_to_do(arguments, advice, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) in (1, 2)
    last = capsys.readouterr().err.rstrip().splitlines()[-1]
    assert last.startswith("next: ")
    assert advice in last


def test_an_existing_run_and_what_to_do_with_it(capsys, tmp_path):
    arguments = ["train", "--data", "digits", "--connectivity", "0.1", "--epochs", "1", "--quiet", "--out", str(tmp_path / "x")]
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert capsys.readouterr().err.rstrip().splitlines()[-1].startswith("next: another --out, --resume")


def test_a_full_disk_and_what_needs_no_advice():
    assert "make room" in next_step(OSError(errno.ENOSPC, "No space left on device"), "train")
    assert next_step(OSError(errno.EIO, "Input/output error"), "train") is None
