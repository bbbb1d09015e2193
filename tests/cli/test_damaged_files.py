"""Every command that reads a file, with every damage: one sentence and exit code 2, never a traceback."""

import json
import os
import random
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound_lab.cli import main
from wirebound_lab.run.config import make_config, read_settings
from wirebound_lab.sweep.drive import free_folder
from wirebound_lab.sweep.outcome import finished_runs
from wirebound_lab.sweep.plan import Trial

sys.path.append(str(Path(__file__).resolve().parents[1] / "reliability"))
from fuzz_mutate import Sealed, mutate_value
from reliability_helpers import as_any_user, fork, outcome

SMALL = ["--data", "digits", "--connectivity", "0.2", "--hidden", "8", "--epochs", "2", "--batch-size", "200", "--quiet"]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A finished run, a file whose model is no plain stack, and an experiment."""
    folder = tmp_path_factory.mktemp("good")
    assert main(["train", *SMALL, "--out", str(folder / "run")]) == 0

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(20, 40), nn.Linear(40, 5)

    model = wb.sparsify(Net(), connectivity=0.2)
    wb.save(folder / "net.safetensors", method=wb.DeepR(model, torch.optim.Adam(model.parameters())))
    experiment = {"format": 1, "name": "fig", "charts": [{"series": [{"points": [{"x": 1, "y": 2}]}]}], "findings": []}
    (folder / "figures" / "fig").mkdir(parents=True)
    (folder / "figures" / "fig" / "experiment.json").write_text(json.dumps(experiment))
    return folder


@pytest.fixture
def place(good, tmp_path):
    """A copy that may be damaged."""
    shutil.copytree(good, tmp_path / "place")
    return tmp_path / "place"


def _empty(path):
    path.write_bytes(b"")


def _cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _garbage(path):
    path.write_bytes(bytes(range(256)) * 8)


def _zeros(path):
    path.write_bytes(bytes(1000))


def _huge_header(path):
    path.write_bytes((1 << 63).to_bytes(8, "little") + path.read_bytes()[8:])


def _folder(path):
    path.unlink()
    path.mkdir()


def _dangling(path):
    path.unlink()
    path.symlink_to("nowhere")


def _gone(path):
    path.unlink()


def _text(text):
    def write(path):
        path.write_text(text)

    write.__name__ = f"_{text[:8]}"
    return write


DAMAGES = [_empty, _cut, _garbage, _zeros, _huge_header, _folder, _dangling, _gone]
DAMAGES += [_text(t) for t in ("[]", "{}", "3", "null", '"x"', "NaN", "1e999", "9" * 5001, "9" * 400, "[" * 99_999, '{"a":' * 99_999)]

COMMANDS = {
    "info": ["info", "run"],
    "info of a file": ["info", "run/model.safetensors"],
    "info of another model": ["info", "net.safetensors"],
    "export": ["export", "run", "--to", "scipy", "--out", "matrices"],
    "report": ["report", "run", "--out", "page.html"],
    "report of experiments": ["report", "figures", "--out", "page.html"],
    "refine": ["refine", "run", "--seeds", "0", "--out", "refined"],
    "resume": ["train", "--resume", "--out", "run", "--quiet"],
    "settings": ["train", "--config", "run/config.json", "--out", "another", "--quiet"],
}
READS = {
    "config.json": ("info", "export", "report", "refine", "resume", "settings"),
    "summary.json": ("info", "export", "report", "refine", "resume"),
    "metrics.jsonl": ("report", "refine"),
    "model.safetensors": ("info", "info of a file", "export", "resume"),
}


def _run(name, place, capsys, codes=(2,)):
    """The command's error: one line, and perhaps one on what to do."""
    before = Path.cwd()
    os.chdir(place)
    try:
        code = main(COMMANDS[name])
    finally:
        os.chdir(before)
    said = capsys.readouterr().err.strip().split("\n")
    assert code in codes, (code, said)
    if code:
        assert said[0].startswith("wirebound: "), said
        assert len(said) <= 2, said
        assert len(said[0]) < 700, said
    return said[0]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("file", READS)
def test_a_damaged_run_folder(place, capsys, file, damage):
    damage(place / "run" / file)
    for command in READS[file]:
        # No settings at all are settings, and a report shows what can be read.
        lenient = command in ("report", "settings", "resume") or damage.__name__ == "_{}"
        _run(command, place, capsys, codes=(0, 2) if lenient else (2,))
    # A sweep leaves such a folder alone and runs its trial under another name.
    if file in ("config.json", "summary.json"):
        assert finished_runs(place) == {} or damage.__name__ == "_{}"


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_other_damaged_files(place, capsys, damage):
    damage(place / "net.safetensors")
    _run("info of another model", place, capsys)
    damage(place / "figures" / "fig" / "experiment.json")
    _run("report of experiments", place, capsys)


@pytest.mark.parametrize("command", ["info", "refine", "resume", "export", "report"])
@pytest.mark.parametrize("file", ["summary.json", "config.json"])
def test_values_that_are_wrong(place, capsys, command, file):
    chance = random.Random(f"{command} {file}")
    content = json.loads((place / "run" / file).read_text())
    for _ in range(12):
        (place / "run" / file).write_text(json.dumps(mutate_value(content, chance)))
        _run(command, place, capsys, codes=(0, 2))
        shutil.rmtree(place / "matrices", ignore_errors=True)


@pytest.mark.parametrize("key", ["test_accuracy", "seconds", "training_seconds", "steps", "test_loss", "budget", "possible"])
def test_a_huge_number_in_the_summary_is_named(place, capsys, key):
    path = place / "run" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: 10**400}))
    for command in ("info", "resume"):
        if (command, key) in (("info", "seconds"), ("info", "training_seconds"), ("info", "budget"), ("info", "possible")):
            continue  # not on the card
        if (command, key) == ("resume", "test_loss"):
            continue  # not in the table
        assert f"{key} (=1000" in _run(command, place, capsys)
    if key in ("test_accuracy", "seconds"):
        assert finished_runs(place) == {}
    assert _run("report", place, capsys, codes=(0,)) == ""


def test_half_letters_do_not_stop_a_report(place, capsys):
    path = place / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "data_path": "\ud800"}))
    _run("report", place, capsys, codes=(0,))
    assert "data_path" in (place / "page.html").read_text()


@pytest.mark.parametrize("file", ["net.safetensors", "run/model.safetensors"])
def test_files_that_lie_under_a_right_checksum(place, capsys, file):
    path = place / file
    sealed = Sealed(path.read_bytes())
    chance = random.Random(5)
    for _ in range(60):
        path.write_bytes(sealed.mutate(chance))
        _run("info of another model" if file.startswith("net") else "info of a file", place, capsys, codes=(0, 2))


@pytest.mark.parametrize("file", READS)
def test_a_file_without_permission(place, tmp_path, capsys, file):
    for command in READS[file]:
        _run(command, place, capsys, codes=(0, 2))  # whatever has to be imported, while everything may be read
    (place / "run" / file).chmod(0)
    for command in READS[file]:

        def work(arguments=COMMANDS[command]):
            os.chdir(place)
            as_any_user(reads=False)
            if os.access(place / "run" / file, os.R_OK, effective_ids=True):
                return 77
            return main(arguments)

        code = outcome(fork(work, tmp_path / "log"))
        if code == 77:
            pytest.skip("this user may read any file")
        said = (tmp_path / "log").read_text()
        assert code == 2, said
        assert "Permission denied" in said
        assert "Traceback" not in said


def test_a_sweep_gives_a_damaged_folder_another_name(place):
    config = make_config(read_settings(place / "run" / "config.json"))
    (place / "run" / "config.json").write_text("[]")
    assert free_folder(place, Trial("run", config)).name.startswith("run-")
