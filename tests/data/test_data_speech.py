"""The file of labelled speech: the real one, and files that lie about their size, shapes, types and labels."""

from __future__ import annotations

import hashlib
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_helpers import at_most
from speech_helpers import npy, npz, phone_arrays, zipped

from wirebound_lab import data
from wirebound_lab.data.content import File
from wirebound_lab.data.speech import Speech, pack_phones, parse_npz, parse_phones

LIMIT = 1_000_000


def parse(content: bytes) -> data.SequenceDataset:
    return parse_phones(content, "speech", "file.npz", "here", LIMIT)


def test_the_real_file_is_what_its_readme_says(speech: data.SequenceDataset) -> None:
    train, test = speech.part("train"), speech.part("test")
    assert (len(train), len(test)) == (2498, 2492)
    assert (int(speech.lengths[train].sum()), int(speech.lengths[test].sum())) == (843_751, 787_867)
    assert (speech.classes, speech.features, speech.class_names[-1]) == (38, 39, "SIL")
    assert len(set(speech.speakers[train])) == len(set(speech.speakers[test])) == 125
    assert not set(speech.speakers[train]) & set(speech.speakers[test])
    assert np.bincount(speech.labels, minlength=38)[37] / len(speech.labels) == pytest.approx(0.251, abs=5e-4)
    assert speech.frames.dtype == np.int16  # stored as it came: the 39 inputs of all frames would take 254 MB
    x, lengths, y = next(speech.batches(4, test))
    assert x.shape == (4, int(lengths.max()), 39)
    assert x.abs().max() < 20
    assert int(y.max()) < 38


def test_what_is_packed_is_read_again() -> None:
    arrays = phone_arrays()
    features = (arrays["mfcc"] * arrays["step"]).astype(np.float32)
    rest = (arrays["labels"], arrays["lengths"], ("AA", "B", "SIL"), arrays["is_test"], ["u"] * 6, ["s"] * 6)
    content = pack_phones(features, *rest)
    assert content == pack_phones(features, *rest)
    read = parse(content)
    assert read.frames * read.step == pytest.approx(features, abs=float(features.std(0).max()) / 50)
    assert read.labels.tolist() == arrays["labels"].tolist()
    assert read.parts.tolist() == ["train", "train", "test"] * 2
    assert (read.class_names, read.source) == (("AA", "B", "SIL"), "here")


@pytest.mark.parametrize("packed", [True, False])
def test_packed_or_stored(packed: bool) -> None:
    arrays = phone_arrays()
    assert np.array_equal(parse(npz(arrays, packed)).frames, arrays["mfcc"])


def changed(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**phone_arrays(), **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"labels": None}, r"lacks \['labels'\]"),
        ({"extra": np.zeros(3)}, r"holds \['extra'\]"),
        ({"mfcc": np.zeros((33, 13))}, r"type of mfcc \(=float64\) must be int16"),
        ({"mfcc": np.zeros((33, 12), dtype=np.int16)}, r"shape of mfcc \(=\(33, 12\)\) must be \(33, 13\)"),
        ({"step": np.full(13, np.nan, dtype=np.float32)}, r"step \(=\[nan, .*must be finite"),
        ({"step": np.zeros(13, dtype=np.float32)}, r"step .*must be finite numbers in \(0, 1e6\)"),
        ({"labels": np.full(33, 3, dtype=np.uint8)}, r"labels \(from 3 to 3\) must be below 3"),
        ({"lengths": np.array([3, 4, 5, 6, 7, 9], dtype=np.int32)}, r"lengths \(least 3, in all 34\) must be at least 1 and add up to 33"),
        ({"lengths": np.array([-3, 10, 5, 6, 7, 8], dtype=np.int32)}, r"lengths \(least -3, in all 33\) must be at least 1"),
        ({"lengths": np.array([2**31 - 1] * 6, dtype=np.int32)}, r"in all 12884901882\) must be at least 1 and add up to 33"),
        ({"classes": np.array(["A", "A", "B"])}, "different names"),
        ({"is_test": np.ones(6, dtype=bool)}, "must have training utterances"),
        ({"is_test": np.zeros(6, dtype=np.uint8)}, r"type of is_test \(=uint8\) must be bool"),
        ({"speaker": np.array(["s"] * 5)}, r"shape of speaker \(=\(5,\)\) must be \(6,\)"),
        ({"utt": np.zeros((6, 1), dtype="U2")}, "shape of utt"),
    ],
)
def test_each_broken_rule_is_named(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(data.DataError, match=f"file.npz: .*{rule}"):
        parse(npz(changed(**changes)))


class Trap:
    """Unpickling this would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    trace = tmp_path / "unpickled"
    body = pickle.dumps(Trap(trace))
    with pytest.raises(data.DataError, match=r"type \(='\|O'\) must be truth, numbers or text"):
        parse_npz(zipped({"a.npy": npy("|O8", "(1,)", body)}), "f", LIMIT)
    with pytest.raises(data.DataError, match=r"type \(='\|O'\) must be truth, numbers or text"):
        parse_npz(zipped({"a.npy": npy("|O", "(1,)", body)}), "f", LIMIT)
    assert not trace.exists()
    pickle.loads(body)
    assert trace.exists()  # the trap works


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "must end as an .npz ends"),
        (npz(phone_arrays())[:-1], "must end as an .npz ends; is it cut off"),
        (zipped({"a.npy": b"\0" * 900_000, "b.npy": b"\0" * 900_000}), "at most 1000000 bytes, claims 1800000"),
        (zipped({"a.npy": npy("<f8", "(100000000000,)", b"\0" * 8)}), "promises 800000000000 bytes"),
        (zipped({"a.npy": npy("<f8", "(999999999999, 999999999999, 999999999999)", b"")}), "promises"),
        (zipped({"a.npy": npy("<f8", "(2,)", b"\0" * 17)}), "promises 16 bytes .*there are 17"),
        (zipped({"a.npy": npy("<f8", f"({'1, ' * 99})", b"\0" * 8)}), "must be an intact .npz"),
        (zipped({"a.npy": npy("<f8", "(-1, -1)", b"\0" * 8)}), "must be an intact .npz"),
        (zipped({"a.npy": npy("<f8", f"{'(' * 900}", b"\0" * 8)}), "header must be as NumPy writes it"),
        (zipped({"a.npy": npy("<q9", "(1,)", b"\0" * 9)}), "header must be as NumPy writes it .*<q9"),
        (zipped({"a.npy": npy("<U1", "(1,)", b"\xff\xff\xff\xff")}), "Unicode"),
        (zipped({"a.npy": npy("|b1", "(1,)", b"\x02")}), "truth must be 0 or 1, one is 2"),
        (zipped({"a.npy": npy("<f8", "(1,)", b"\0" * 8, b"\x03\x00")}), "version 1.0"),
        (zipped({"a.npy": b"\x93NUMPY\x01\x00\xff\xff{"}), "header must be"),
        (zipped({"../a.npy": b""}), "members must be arrays"),
        (zipped({"a.npy": b"x"}, zipfile.ZIP_BZIP2), "must be stored or deflated, is of type 12"),
        (zipped({f"a{'b' * i}.npy": b"x" for i in range(39)} | {f"c{'d' * i}.npy": b"x" for i in range(39)}), "must list its arrays in at most 4096 bytes"),
    ],
)
def test_a_bad_archive_is_refused(content: bytes, rule: str) -> None:
    with at_most(3_000_000), pytest.raises(data.DataError, match=rule):
        parse_npz(content, "f.npz", LIMIT)


def test_a_bomb_takes_no_memory() -> None:
    # A megabyte that unpacks to a gigabyte, its directory telling the truth, and once lying about it.
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as member:
        for _ in range(64):
            member.write(bytes(1 << 20))
    bomb = raw.getvalue()
    with at_most(2_000_000), pytest.raises(data.DataError, match="must unpack to at most 1000000 bytes, claims 67108864"):
        parse_npz(bomb, "f.npz", LIMIT)
    lying = bytearray(bomb)
    at = bomb.rindex(b"PK\x01\x02") + 24
    lying[at : at + 4] = (1000).to_bytes(4, "little")
    with at_most(2_000_000), pytest.raises(data.DataError, match=r"intact|must be"):
        parse_npz(bytes(lying), "f.npz", LIMIT)


def test_found_and_verified_as_the_others(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = npz(phone_arrays())
    file = File("so762_phones.npz", len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(Speech, "files", (file,))
    with pytest.raises(data.DataUnavailable, match=r"(?s)WIREBOUND_DATA: is not set.*no public address"):
        data.load_sequences("speech")
    with pytest.raises(data.DataUnavailable, match="no public address"):
        data.fetch("speech")
    (tmp_path / "own" / "speech").mkdir(parents=True)
    path = tmp_path / "own" / "speech" / file.name
    path.write_bytes(content)
    assert data.load_sequences("speech", path=tmp_path / "own").source == f"{path.parent} (path)"
    monkeypatch.setenv("WIREBOUND_DATA", str(tmp_path / "own"))
    assert data.verify("speech").state == data.fetch("speech").state == "verified"
    assert {s.name: s.state for s in data.status()}["speech"] == "found"
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    with pytest.raises(data.DataError, match=r"so762_phones\.npz: sha256 of the content"):
        data.load_sequences("speech")


def test_images_and_sequences_are_not_mixed_up() -> None:
    with pytest.raises(data.DataError, match=r"data \(='speech'\) is a set of sequences: .*load_sequences"):
        data.load("speech")
    with pytest.raises(data.DataError, match=r"data \(='mnist'\) must be one of speech, timit, spoken"):
        data.load_sequences("mnist")
