"""Real data for the tests, a machine without any, a tiny stand-in for MNIST, a local web server."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from wirebound_lab import data
from wirebound_lab.data import download
from wirebound_lab.data.content import File
from wirebound_lab.data.mnist import Mnist

# pytest's importlib mode puts no folder on the path, and the tests here share a module.
sys.path.insert(0, str(Path(__file__).parent))

from data_helpers import BESIDE, Server, idx


def load_real(name: str) -> data.Dataset:
    """From WIREBOUND_DATA, or a data folder beside the repository, or fetched as any user would."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("WIREBOUND_DATA") and BESIDE.is_dir():
            patch.setenv("WIREBOUND_DATA", str(BESIDE))
        try:
            return data.load(name)
        except data.DataUnavailable as error:
            pytest.skip(f"{name} cannot be reached from here: {error}")


def load_real_sequences(name: str) -> data.SequenceDataset:
    """As :func:`load_real`, for sets of sequences."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("WIREBOUND_DATA") and BESIDE.is_dir():
            patch.setenv("WIREBOUND_DATA", str(BESIDE))
        try:
            return data.load_sequences(name)
        except data.DataUnavailable as error:
            pytest.skip(f"{name} cannot be reached from here: {error}")


@pytest.fixture(scope="session")
def speech() -> data.SequenceDataset:
    return load_real_sequences("speech")


@pytest.fixture(scope="session")
def mnist() -> data.Dataset:
    return load_real("mnist")


@pytest.fixture(scope="session")
def cifar10() -> data.Dataset:
    return load_real("cifar10")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any data: no variable, an empty home. Returns wirebound's folder in its cache."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.delenv("WIREBOUND_DATA", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return home / "cache" / "wirebound"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A data set in MNIST's shape with six and three images takes MNIST's place; file name -> content."""
    random = np.random.RandomState(0)
    arrays = {
        "train-images-idx3-ubyte": random.randint(0, 256, (6, 28, 28)),
        "train-labels-idx1-ubyte": np.arange(6),
        "t10k-images-idx3-ubyte": random.randint(0, 256, (3, 28, 28)),
        "t10k-labels-idx1-ubyte": np.arange(3),
    }
    contents = {name: idx(array) for name, array in arrays.items()}
    files = tuple(File(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items())
    monkeypatch.setattr(Mnist, "files", files)
    monkeypatch.setattr(Mnist, "mirrors", ())
    return contents


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(download, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(download, "STALL_SECONDS", 1.0)
    running = Server()
    yield running
    running.close()


@pytest.fixture
def no_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
