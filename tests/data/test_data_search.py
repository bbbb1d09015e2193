"""The order of search, what is accepted where, and what a damaged copy leads to."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
from pathlib import Path

import pytest
from data_helpers import BESIDE, put

from wirebound_lab import data
from wirebound_lab.data import cifar10
from wirebound_lab.data.cifar10 import Cifar10


def test_path_then_variable_then_cache(
    cache: Path, tiny: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache / "mnist", tiny)
    assert data.load("mnist", fetch=False).source == f"{cache / 'mnist'} (cache)"
    folder = tmp_path / "variable"
    put(folder / "mnist", tiny)
    monkeypatch.setenv("WIREBOUND_DATA", str(folder))
    assert data.load("mnist", fetch=False).source == f"{folder / 'mnist'} (WIREBOUND_DATA)"
    given = put(tmp_path / "given", tiny)
    assert data.load("mnist", path=given, fetch=False).source == f"{given} (path)"
    assert len(data.load("mnist", path=str(given)).train_y) == 6


@pytest.mark.parametrize("inside", ["mnist", "MNIST/raw", "."])
@pytest.mark.parametrize("packed", [True, False])
def test_accepted_layouts(
    cache: Path, tiny: dict[str, bytes], tmp_path: Path, inside: str, packed: bool
) -> None:
    put(tmp_path / "d" / inside, tiny, packed)
    assert data.load("mnist", path=tmp_path / "d").train_x.shape == (6, 28, 28)
    assert data.verify("mnist", tmp_path / "d").state == "verified"


def test_a_variable_that_lacks_the_data_set_is_passed_over(
    cache: Path, tiny: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIREBOUND_DATA", str(tmp_path / "gone"))
    put(cache / "mnist", tiny)
    assert data.load("mnist", fetch=False).source.endswith("(cache)")


def test_a_given_path_is_the_only_place(cache: Path, tiny: dict[str, bytes], tmp_path: Path) -> None:
    put(cache / "mnist", tiny)
    for path, reason in (
        (tmp_path / "typo", "does not exist"),
        (tmp_path, r"lacks train-images-idx3-ubyte\.gz"),
    ):
        with pytest.raises(data.DataUnavailable, match=reason) as caught:
            data.load("mnist", path=path)
        assert len(caught.value.attempts) == 1


@pytest.mark.parametrize("how", ["path", "variable"])
def test_damage_in_the_users_own_folder_is_an_error(
    cache: Path, tiny: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    put(cache / "mnist", tiny)
    folder = put(tmp_path / "own", tiny)
    name = "t10k-images-idx3-ubyte"
    (folder / f"{name}.gz").write_bytes(gzip.compress(tiny[name][:-1] + b"\x01"))
    if how == "variable":
        monkeypatch.setenv("WIREBOUND_DATA", str(folder))
    with pytest.raises(data.DataError, match=rf"{name}\.gz: sha256 of the content \(=\w+\) must be \w+"):
        data.load("mnist", path=folder if how == "path" else None)
    with pytest.raises(data.DataError, match="sha256"):
        data.verify("mnist", path=folder if how == "path" else None)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda content: b"", "header must be at least 4 bytes"),
        (lambda content: content[:100], "promises 4704 bytes"),
        (lambda content: b"\0\0\x09" + content[3:], "magic"),
        (lambda content: content + b"\0", "at most 4720 bytes"),
        (lambda content: content[:4] + b"\xff\xff\xff\xff" + content[8:], "promises"),
        (lambda content: gzip.compress(content)[:-9], "gzip stream must be complete"),
        (
            lambda content: content[:7] + b"\x03" + content[8 : 16 + 3 * 784],
            "size of the content .* must be 4720",
        ),
    ],
)
def test_each_damage_is_named(cache: Path, tiny: dict[str, bytes], tmp_path: Path, damage, rule: str) -> None:
    name = "train-images-idx3-ubyte"
    folder = put(tmp_path / "own", {**tiny, name: damage(tiny[name])}, packed=False)
    with pytest.raises(data.DataError, match=f"{name}: .*{rule}"):
        data.load("mnist", path=folder)


def test_status_does_not_read_and_tells_where(
    cache: Path, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {s.name: s for s in data.status()}
    assert [before[name].state for name in ("mnist", "cifar10", "digits")] == [
        "missing",
        "missing",
        "built in",
    ]
    assert str(cache / "mnist") in before["mnist"].where
    assert not cache.exists(), "asking must not create anything"
    put(cache / "mnist", dict.fromkeys(tiny, b""))
    after = {s.name: s for s in data.status()}
    assert after["mnist"] == data.Status("mnist", "found", f"{cache / 'mnist'} (cache)")
    with pytest.raises(data.DataError, match="header"):
        data.verify("mnist")


def test_verify_finds_nothing(cache: Path, tiny: dict[str, bytes]) -> None:
    with pytest.raises(data.DataUnavailable, match="WIREBOUND_DATA: is not set"):
        data.verify("mnist")
    assert data.verify("digits") == data.Status("digits", "verified", "scikit-learn")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="XDG_CACHE_HOME is the Linux convention")
def test_relative_xdg_cache_home_is_ignored(
    cache: Path, tiny: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    put(tmp_path / "home" / ".cache" / "wirebound" / "mnist", tiny)
    assert data.load("mnist", fetch=False).source.endswith("(cache)")


def webp_folder() -> Path:
    folder = Path(os.environ.get("WIREBOUND_DATA") or BESIDE) / "cifar10"
    if not (folder / "test_batch.webp").is_file():
        pytest.skip("the WebP form of CIFAR-10 is not on this machine")
    return folder


def test_webp_with_one_wrong_byte_never_reaches_the_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cifar10"
    shutil.copytree(webp_folder(), folder)
    path = folder / "data_batch_3.webp"
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    folder.chmod(0o755)
    path.write_bytes(content)
    decoded = []
    real = cifar10._decode
    monkeypatch.setattr(cifar10, "_decode", lambda *a: decoded.append(a[-1]) or real(*a))
    with pytest.raises(data.DataError, match=r"data_batch_3\.webp: sha256"):
        data.load("cifar10", path=tmp_path)
    assert str(path) not in decoded


def test_both_forms_of_cifar10_are_the_same(cifar10: data.Dataset, tmp_path: Path) -> None:
    import torch

    parts = [(cifar10.train_x[i : i + 10000], cifar10.train_y[i : i + 10000]) for i in range(0, 50000, 10000)]
    for file, (images, labels) in zip(
        Cifar10.files, [*parts, (cifar10.test_x, cifar10.test_y)], strict=True
    ):
        rows = torch.cat([labels.to(torch.uint8).unsqueeze(1), images.reshape(10000, -1)], dim=1)
        (tmp_path / file.name).write_bytes(rows.numpy().tobytes())
    again = data.load("cifar10", path=tmp_path)
    for name in ("train_x", "train_y", "test_x", "test_y"):
        assert torch.equal(getattr(again, name), getattr(cifar10, name))
    with (tmp_path / "test_batch.bin").open("r+b") as stream:
        stream.truncate(3073 * 9999)
    with pytest.raises(
        data.DataError, match=r"test_batch\.bin: size of the content \(=30726927\) must be 30730000"
    ):
        data.verify("cifar10", tmp_path)


def test_incomplete_cifar10_names_what_is_missing(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "data_batch_1.webp").touch()
    with pytest.raises(data.DataUnavailable, match=r"lacks data_batch_2\.webp.*test-labels-idx1-ubyte\.gz"):
        data.load("cifar10", path=tmp_path)
    (tmp_path / "data_batch_1.bin").touch()
    with pytest.raises(data.DataUnavailable, match=r"lacks data_batch_2\.bin"):
        data.load("cifar10", path=tmp_path)
