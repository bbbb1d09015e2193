"""Members of an archive are read by exact name, checked, bounded; nothing else of it matters."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from data_helpers import at_most
from hypothesis import given, settings
from hypothesis import strategies as st

from wirebound_lab.data import DataError
from wirebound_lab.data.content import File, read_members

CONTENT = b"the right content" * 40
WANTED = File("package/data", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def tar(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = "elsewhere"
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def read(tmp_path: Path, packed: bytes, limit: int = 100_000) -> list[bytes]:
    path = tmp_path / "a.tgz"
    path.write_bytes(packed)
    return [content for _, content in read_members(path, [WANTED], limit)]


def test_only_the_exact_name_is_read(tmp_path: Path) -> None:
    packed = tar(
        ("../package/data", b"x"), ("/package/data", b"x"), ("package/data", CONTENT), ("other", b"y")
    )
    assert read(tmp_path, packed) == [CONTENT]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tgz"]


@pytest.mark.parametrize(
    ("packed", "rule"),
    [
        (tar(("package/data", CONTENT[:-1] + b"?")), "a.tgz:package/data: sha256"),
        (tar(("package/data", CONTENT[:-1])), f"must be a regular file of {len(CONTENT)} bytes, size is 679"),
        (tar(("package/data", b""), kind=tarfile.SYMTYPE), "must be a regular file"),
        (tar(("package/data", b""), kind=tarfile.DIRTYPE), "must be a regular file"),
        (tar(("something", CONTENT)), "must hold package/data"),
        (tar(("package/data", CONTENT))[:60], r"must be an intact \.tar\.gz"),
        (b"", r"must (be an intact|hold)"),
        (b"<html>not found</html>", r"must be an intact \.tar\.gz"),
    ],
)
def test_broken_archives(tmp_path: Path, packed: bytes, rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        read(tmp_path, packed)


def test_bomb_before_the_member_is_refused(tmp_path: Path) -> None:
    packed = tar(("bomb", bytes(50_000_000)), ("package/data", CONTENT))
    with at_most(3_000_000), pytest.raises(DataError, match="must unpack to at most 1000000 bytes"):
        read(tmp_path, packed, limit=1_000_000)


def test_bomb_in_a_header_is_refused(tmp_path: Path) -> None:
    # The extended header of a member is read into memory whole; its size is the archive's own claim.
    packed = tar(("pax", bytes(50_000_000)), kind=tarfile.XHDTYPE)
    with at_most(5_000_000), pytest.raises(DataError, match="must unpack to at most 1000000 bytes"):
        read(tmp_path, packed, limit=1_000_000)


RAW = gzip.decompress(tar(("package/data", CONTENT), ("more", b"z" * 700)))


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 1100), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, len(RAW)),
)
def test_only_data_errors_come_out(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: int
) -> None:
    content = bytearray(RAW)
    for place, value in changes:
        content[place] = value
    path = tmp_path_factory.getbasetemp() / "mutated.tgz"
    path.write_bytes(gzip.compress(content[: max(cut, 600)], compresslevel=1))
    with contextlib.suppress(DataError):
        assert [c for _, c in read_members(path, [WANTED], 100_000)] == [CONTENT]
