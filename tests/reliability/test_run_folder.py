"""The run folder: places that cannot hold one are refused before the first step, and what others do to it is noticed."""

import os
import shutil
from pathlib import Path

import pytest
from reliability_helpers import as_any_user, assert_same, command, config, content, outcome

from wirebound.checkpoint import WriteError
from wirebound_lab.cli import main
from wirebound_lab.run import train
from wirebound_lab.run.record import RunFolder, RunFolderError

OPTIONS = ["--data", "digits", "--connectivity", "0.2", "--hidden", "16", "--batch-size", "50", "--lr", "0.3", "--quiet"]


def _refused(out, capsys, *more) -> str:
    """What the command says, which would train for hours if it began."""
    assert main(["train", *OPTIONS, "--epochs", "100000", "--out", str(out), *more]) == 2
    return capsys.readouterr().err


def test_a_link_to_nowhere(tmp_path, capsys):
    link = tmp_path / "run"
    link.symlink_to(tmp_path / "nowhere")
    for more in ((), ("--overwrite",), ("--resume",)):
        assert "is a link to nowhere: remove it, or choose another name" in _refused(link, capsys, *more)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


def test_a_link_to_a_run_is_not_overwritten(tmp_path, capsys):
    train(config(epochs=1), tmp_path / "real")
    (tmp_path / "run").symlink_to(tmp_path / "real")
    assert "is a link, so it is not overwritten" in _refused(tmp_path / "run", capsys, "--overwrite")
    assert "exists already" in _refused(tmp_path / "run", capsys)
    assert train(config(epochs=1), tmp_path / "run", resume=True).summary["epochs"] == 1
    # A link on the way is as good as a folder.
    (tmp_path / "way").symlink_to(tmp_path)
    train(config(epochs=1), tmp_path / "way" / "other")
    content(tmp_path / "other")


def test_something_in_the_way(tmp_path, capsys):
    (tmp_path / "run.partial").write_text("a file")
    assert "is in the way and no folder" in _refused(tmp_path / "run", capsys)
    assert "is in the way and no folder" in _refused(tmp_path / "run", capsys, "--overwrite")
    (tmp_path / "file").write_text("a file")
    assert "exists already" in _refused(tmp_path / "file", capsys)
    assert "is not a run folder" in _refused(tmp_path / "file", capsys, "--overwrite")
    assert "Not a directory" in _refused(tmp_path / "file" / "run", capsys)
    assert (tmp_path / "file").read_text() == "a file"


@pytest.mark.parametrize("length", [248, 300])
def test_a_name_that_is_too_long(tmp_path, capsys, length):
    assert "File name too long" in _refused(tmp_path / ("a" * length), capsys)
    assert "File name too long" in _refused(tmp_path / ("a" * length), capsys, "--resume")


def test_a_path_that_is_too_long_for_its_files(tmp_path, monkeypatch, capsys):
    """The folder itself can be made, the name of its checkpoint cannot: found out before the first step."""
    limit = os.pathconf(tmp_path, "PC_PATH_MAX")
    out = tmp_path
    while len(str(out)) < limit - 160:
        out = out / ("a" * 100)
    out = out / ("b" * (limit - len(str(out)) - len("/.partial/metrics.jsonl") - 2))
    assert "File name too long" in _refused(out, capsys)
    assert list(out.parent.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path):
    log = tmp_path / "log"
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)

    def before():
        as_any_user()
        if os.access(closed, os.W_OK, effective_ids=True):
            os._exit(77)  # a user whom nothing stops

    code = outcome(command(["train", *OPTIONS, "--out", str(closed / "run")], log, before=before))
    if code == 77:
        pytest.skip("this user may write anywhere")
    assert code == 2
    assert "cannot be made: Permission denied; choose a place that can be written" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_a_place_that_was_closed_since_is_noticed_before_the_run_goes_on(tmp_path):
    """The unfinished run can be written, but it could never get its name."""
    place, log = tmp_path / "place", tmp_path / "log"
    with pytest.raises(KeyError):
        train(config(), place / "run", listener=_at(20, lambda: {}["stop"]))
    place.chmod(0o555)
    code = outcome(command(["train", "--resume", "--quiet", "--out", str(place / "run")], log, before=as_any_user))
    place.chmod(0o755)
    if code == 0:
        pytest.skip("this user may write anywhere")
    assert code == 2
    assert "Permission denied" in log.read_text()
    train(config(), place / "run", resume=True)


# While the run goes on


def _at(step, what):
    """A listener that does something once, at that step."""

    def listener(progress):
        if progress.step >= step and not listener.done:
            listener.done = True
            what()

    listener.done = False
    return listener


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.json", "checkpoint.safetensors"])
@pytest.mark.parametrize("every", [2, None])
def test_a_file_that_is_deleted_during_the_run_is_written_anew(tmp_path, name, every):
    settings = config(checkpoint_every=every)
    train(settings, tmp_path / "whole")
    victim = tmp_path / "run.partial" / name
    train(settings, tmp_path / "run", listener=_at(30, lambda: victim.unlink(missing_ok=True)))
    assert_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("every", [2, None])
def test_records_that_are_moved_away_and_a_run_that_is_resumed(tmp_path, every):
    settings = config(checkpoint_every=every)
    train(settings, tmp_path / "whole")

    def listener(progress):
        if progress.step == 20:
            (tmp_path / "run.partial" / "metrics.jsonl").rename(tmp_path / "elsewhere")
        if progress.step == 33 and progress.accuracy is None:
            raise KeyError

    with pytest.raises(KeyError):
        train(settings, tmp_path / "run", listener=listener)
    train(settings, tmp_path / "run", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("every", [2, None])
def test_a_folder_that_is_deleted_during_the_run_ends_it(tmp_path, capsys, every):
    folder = tmp_path / "run.partial"
    with pytest.raises(WriteError, match=r"run.partial was deleted or moved while the run was writing in it"):
        train(config(checkpoint_every=every), tmp_path / "run", listener=_at(30, lambda: shutil.rmtree(folder)))
    assert list(tmp_path.iterdir()) == []


def test_the_command_ends_with_one_sentence_when_its_folder_goes(tmp_path, capsys, monkeypatch):
    original = RunFolder.metric

    def metric(self, kind, **values):
        if kind == "epoch":
            shutil.rmtree(self.partial, ignore_errors=True)
        original(self, kind, **values)

    monkeypatch.setattr(RunFolder, "metric", metric)
    assert main(["train", *OPTIONS, "--epochs", "2", "--out", str(tmp_path / "run")]) == 1
    assert "was deleted or moved" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_another_run_that_took_the_place_is_left_alone(tmp_path):
    def replace():
        shutil.rmtree(tmp_path / "run.partial")
        (tmp_path / "run.partial").mkdir()
        (tmp_path / "run.partial" / "config.json").write_text("someone else's")

    with pytest.raises(WriteError, match="deleted or moved"):
        train(config(checkpoint_every=2), tmp_path / "run", listener=_at(4, replace))
    assert [p.name for p in (tmp_path / "run.partial").iterdir()] == ["config.json"]


def test_a_finished_folder_is_never_incomplete(tmp_path):
    """Whatever is missing when the folder would get its name, it does not get it."""
    folder = RunFolder(tmp_path / "run")
    with folder:
        for name in ("config.json", "summary.json"):
            (folder.partial / name).write_text("{}")
        with pytest.raises(WriteError, match=r"lacks model\.safetensors"):
            folder.give_name()
        assert not Path(tmp_path / "run").exists()
    with pytest.raises(RunFolderError, match="--resume"):
        RunFolder(tmp_path / "run")
