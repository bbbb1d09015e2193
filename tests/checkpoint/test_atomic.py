"""Whatever goes wrong while a file is written, its name holds the old content or the new one, whole."""

import errno
import os
import resource
import signal
from pathlib import Path

import pytest
import torch

import wirebound as wb
from wirebound.checkpoint import WriteError, atomic

CALLS = ("open", "fdopen", "ftruncate", "fsync", "replace")


class Crash(BaseException):
    """The machine stops here."""


def _failing(monkeypatch, number, error):
    """Let the system call with this number fail, counted from the start of a save. The list of calls made."""
    made = []

    def wrap(name, call):
        def wrapped(*arguments, **settings):
            made.append(name)
            if len(made) == number:
                raise error
            return call(*arguments, **settings)

        return wrapped

    for name in CALLS:
        monkeypatch.setattr(atomic.os, name, wrap(name, getattr(os, name)))
    return made


def _value(path):
    return wb.load(path).extra["value"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), Crash()], ids=["full", "crash"])
def test_a_failure_at_every_system_call(tmp_path, error):
    path = tmp_path / "c.safetensors"
    seen = set()
    for number in range(1, 20):
        wb.save(path, extra={"value": 0})
        with pytest.MonkeyPatch.context() as patch:
            made = _failing(patch, number, error)
            try:
                wb.save(path, extra={"value": number, "bulk": torch.zeros(1000)})
            except (WriteError, Crash):
                pass
            else:
                break
        assert _value(path) in (0, number)
        if made[-1] != "fsync" or "replace" not in made:
            assert _value(path) == (0 if "replace" not in made[:-1] else number)
        seen.add(made[-1])
    assert seen == set(CALLS)
    assert _value(path) == number


def test_a_failure_after_every_byte(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    wb.save(path, extra={"value": 0})
    size = path.stat().st_size
    for limit in range(0, size, 7):
        written = 0

        class Full:
            def __init__(self, stream):
                self.stream = stream

            def write(self, content, limit=limit):
                nonlocal written
                room = limit - written
                written += len(content)
                self.stream.write(content[: max(0, room)])
                if written > limit:
                    raise OSError(errno.ENOSPC, "No space left on device")

        def write_file(place, write, full=Full, original=atomic.write_file):
            original(place, lambda stream: write(full(stream)))

        monkeypatch.setattr("wirebound.checkpoint.container.write_file", write_file)
        with pytest.raises(WriteError, match=r"No space left.*is whole"):
            wb.save(path, extra={"value": 1})
        monkeypatch.undo()
        assert _value(path) == 0
        assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_limit_on_the_size_of_files(tmp_path):
    """The kernel itself refuses, in a process of its own."""
    path = tmp_path / "c.safetensors"
    wb.save(path, extra={"value": 0})
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            try:
                wb.save(path, extra={"value": 1, "bulk": torch.zeros(100_000)})
            except WriteError as error:
                code = 0 if "File too large" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert _value(path) == 0


def test_killed_writers_leave_no_heap_of_files(tmp_path):
    path = tmp_path / "c.safetensors"
    for _ in range(3):
        pid = os.fork()
        if not pid:
            try:
                atomic.write_file(path, lambda stream: (stream.write(b"half"), stream.flush(), os._exit(0)))
            finally:
                os._exit(1)
        os.waitpid(pid, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors.tmp"]
    wb.save(path, extra={"value": 1})
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]
    assert _value(path) == 1


def test_two_writers_of_one_name(tmp_path):
    path = tmp_path / "c.safetensors"

    def second(stream):
        with pytest.raises(WriteError, match="another process"):
            wb.save(path, extra={"value": 2})
        stream.write(b"first")

    # The second opens a file of its own, as another process would.
    atomic.write_file(path, second)
    assert path.read_bytes() == b"first"


@pytest.mark.parametrize(
    ("where", "reason"),
    [(Path("missing") / "c", "No such file"), (Path("file") / "c", "Not a directory"), (Path("folder"), "directory")],
)
def test_places_that_cannot_be_written(tmp_path, where, reason):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteError, match=reason):
        wb.save(tmp_path / where, extra=1)
