"""The idx reader gives the array or a DataError, whatever the bytes are, and never trusts a header."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from data_helpers import at_most, idx
from hypothesis import given, settings
from hypothesis import strategies as st

from wirebound_lab.data import DataError
from wirebound_lab.data.content import parse_idx, read_file


def read_idx(path: Path, limit: int) -> np.ndarray:
    return parse_idx(read_file(path, limit), str(path))


GOOD = idx(np.arange(2 * 3 * 4).reshape(2, 3, 4))


def test_good_file_plain_and_packed(tmp_path: Path) -> None:
    for content in (GOOD, gzip.compress(GOOD), gzip.compress(GOOD[:9]) + gzip.compress(GOOD[9:])):
        (tmp_path / "f").write_bytes(content)
        array = read_idx(tmp_path / "f", limit=len(GOOD))
        assert array.tolist() == np.arange(24).reshape(2, 3, 4).tolist()
        assert array.flags.writeable


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "header must be at least 4 bytes, file holds 0"),
        (b"\0\0\x08", "header must be at least 4 bytes, file holds 3"),
        (b"\0\0\x0d" + GOOD[3:], r"magic \(=0x00000d03\) must be 0x0000080N"),
        (b"\0\0\x08\x00" + GOOD[4:], r"magic \(=0x00000800\)"),
        (b"\0\0\x08\xff" + GOOD[4:], r"magic \(=0x000008ff\)"),
        (GOOD[:10], "header must be 16 bytes, file holds 10"),
        (GOOD[:-1], "promises 24 bytes .* file holds 23"),
        (GOOD + b"\0", "promises 24 bytes .* file holds 25"),
        (struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1) + bytes(24), "promises 792"),
        (struct.pack(">HBB3I", 0, 8, 3, 0, 2**32 - 1, 2**32 - 1), "must be at least 1"),
    ],
)
def test_broken_content(content: bytes, rule: str) -> None:
    with pytest.raises(DataError, match=f"some-file: .*{rule}"):
        parse_idx(content, "some-file")


@pytest.mark.parametrize("cut", [1, 4, 8, 20])
def test_truncated_gzip(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(GOOD)[:-cut])
    with pytest.raises(DataError, match=r"cut\.gz: gzip stream must be complete"):
        read_idx(path, limit=1000)


def test_gzip_with_a_wrong_checksum(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(GOOD))
    packed[-6] ^= 1
    (tmp_path / "f.gz").write_bytes(packed)
    with pytest.raises(DataError, match="intact"):
        read_idx(tmp_path / "f.gz", limit=len(GOOD))


def test_decompression_bomb_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(200):
            stream.write(bytes(1 << 20))
    with at_most(2_000_000), pytest.raises(DataError, match="must be at most 5000 bytes, holds more"):
        read_idx(path, limit=5000)


def test_lying_header_costs_no_memory() -> None:
    content = struct.pack(">HBBI", 0, 8, 1, 2**31) + bytes(100)
    with at_most(100_000), pytest.raises(DataError, match="promises 2147483648 bytes"):
        parse_idx(content, "liar")


def test_not_a_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(DataError, match="must be readable"):
            read_idx(path, limit=10)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good file (packed or not) with a few bytes changed, removed or added."""
    content = bytearray(gzip.compress(GOOD, mtime=0) if draw(st.booleans()) else GOOD)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(content)))
        match draw(st.sampled_from("xcai")):
            case "x" if place < len(content):
                content[place] = draw(st.integers(0, 255))
            case "c":
                del content[place:]
            case "a":
                content[place:place] = draw(st.binary(max_size=20))
            case _:
                del content[place : place + draw(st.integers(1, 8))]
    return bytes(content)


@settings(max_examples=500, deadline=None)
@given(content=mutated() | st.binary(max_size=64))
def test_only_data_errors_come_out(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_bytes(content)
    try:
        array = read_idx(path, limit=200)
    except DataError:
        return
    assert array.nbytes <= 200
    assert array.dtype == np.uint8
