"""TIMIT from a miniature corpus in exactly its layout: SPHERE files written by hand, RIFF files by soundfile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wirebound_lab import data
from wirebound_lab.data import timit
from wirebound_lab.data.mfcc import mfcc
from wirebound_lab.data.sequences import NO_LABEL
from wirebound_lab.data.timit import CLASSES, PHONES

soundfile = pytest.importorskip("soundfile")

RATE = 16000
LABELS = "0 800 h#\n800 2000 sh\n2000 2400 q\n2400 4000 IX\n4000 4800 h#\n"


def signal(seed: int, samples: int = 4800) -> np.ndarray:
    return np.random.RandomState(seed).randint(-3000, 3000, samples).astype(np.int16)


def sphere(samples: np.ndarray, **changes: str) -> bytes:
    """As NIST writes it: a header of 1024 bytes, then little-endian samples."""
    fields = {
        "database_id": "-s5 TIMIT",
        "channel_count": "-i 1",
        "sample_count": f"-i {len(samples)}",
        "sample_rate": f"-i {RATE}",
        "sample_n_bytes": "-i 2",
        "sample_byte_format": "-s2 01",
        "sample_sig_bits": "-i 16",
        **changes,
    }
    text = "NIST_1A\n   1024\n" + "".join(f"{name} {value}\n" for name, value in fields.items()) + "end_head\n"
    return text.encode().ljust(1024) + samples.astype("<i2").tobytes()


def put(folder: Path, name: str, samples: np.ndarray, labels: str = LABELS, riff: bool = False, upper: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    wav, phn = (f"{name}.WAV", f"{name}.PHN") if upper else (f"{name}.wav".lower(), f"{name}.phn".lower())
    if riff:
        soundfile.write(str(folder / wav), samples, RATE, subtype="PCM_16", format="WAV")
    else:
        (folder / wav).write_bytes(sphere(samples))
    (folder / phn).write_text(labels)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus is complete with two training speakers, one core test speaker, two sentences each."""
    monkeypatch.setattr(timit, "TRAIN_SPEAKERS", 2)
    monkeypatch.setattr(timit, "CORE_TEST", frozenset(["mdab0"]))
    monkeypatch.setattr(timit, "SENTENCES", 2)


def corpus(root: Path, upper: bool = True, riff: bool = False) -> Path:
    def cased(text: str) -> str:
        return text if upper else text.lower()

    number = 0
    for part, region, speaker in (
        ("TRAIN", "DR1", "FCJF0"), ("TRAIN", "DR8", "MTCS0"), ("TEST", "DR1", "MDAB0"), ("TEST", "DR1", "MJSW0"),
    ):  # fmt: skip
        for sentence in ("SA1", "SX37", "SI648"):
            number += 1
            put(root / cased(part) / cased(region) / cased(speaker), cased(sentence), signal(number), riff=riff, upper=upper)
    return root


def test_the_folding_is_that_of_lee_and_hon() -> None:
    assert len(PHONES) == 61
    assert len(CLASSES) == 39
    assert set(PHONES.values()) == {NO_LABEL, *range(39)}
    for group in ("aa ao", "ah ax ax-h", "er axr", "hh hv", "ih ix", "l el", "m em", "n en nx", "ng eng", "sh zh",
                  "uw ux", "pcl tcl kcl bcl dcl gcl h# pau epi"):  # fmt: skip
        assert len({PHONES[phone] for phone in group.split()}) == 1, group
    assert PHONES["q"] == NO_LABEL
    assert len(timit.CORE_TEST) == 24
    assert sum(speaker.startswith("f") for speaker in timit.CORE_TEST) == 8


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("riff", [True, False])
def test_the_layout_of_the_consortium(small: None, cache: Path, tmp_path: Path, upper: bool, riff: bool) -> None:
    corpus(tmp_path / "timit", upper, riff)
    found = data.load_sequences("timit", path=tmp_path)
    # SA sentences and test speakers outside the core test are left out.
    assert found.utterances.tolist() == ["fcjf0_si648", "fcjf0_sx37", "mtcs0_si648", "mtcs0_sx37", "mdab0_si648", "mdab0_sx37"]
    assert found.parts.tolist() == ["train"] * 4 + ["test"] * 2
    assert (found.features, found.classes) == (39, 39)
    # FCJF0's SX37 was the second that was written.
    assert np.array_equal(found.frames[30:60], mfcc(signal(2)))
    # Frame t is centred on sample 160 t + 80: h# up to 800, sh to 2000, q (no class) to 2400, ix to 4000, h#.
    sil, sh, ih = (CLASSES.index(name) for name in ("sil", "sh", "ih"))
    expected = [sil] * 5 + [sh] * 7 + [NO_LABEL] * 3 + [ih] * 10 + [sil] * 5
    assert found.labels[:30].tolist() == expected
    assert found.lengths.tolist() == [30] * 6
    assert data.verify("timit", tmp_path).state == "verified"


def test_the_sample_of_nltk_only_when_asked(cache: Path, tmp_path: Path) -> None:
    for speaker in ("dr1-fvmh0", "dr1-mcpm0", "dr4-falr0", "dr8-mbcg0"):
        for sentence in ("sa1", "si2096", "sx206"):
            put(tmp_path / "timit" / speaker, sentence, signal(1), riff=True, upper=False)
    found = data.load_sequences("timit", path=tmp_path, partial=True)
    assert sorted(set(found.speakers[found.part("train")])) == ["fvmh0", "mcpm0"]
    assert sorted(set(found.speakers[found.part("test")])) == ["falr0", "mbcg0"]
    assert len(found.utterances) == 8
    with pytest.raises(data.DataError, match=r"training speakers of TIMIT \(=2\) must be 462; partial=True"):
        data.load_sequences("timit", path=tmp_path)


def test_missing_speakers_and_sentences_are_named(small: None, cache: Path, tmp_path: Path) -> None:
    root = corpus(tmp_path / "timit")
    for file in (root / "TEST/DR1/MDAB0").iterdir():
        file.unlink()
    with pytest.raises(data.DataError, match="core test of TIMIT must have 1 speakers, lacks mdab0; partial=True"):
        data.load_sequences("timit", path=root)
    assert len(data.load_sequences("timit", path=root, partial=True).utterances) == 4
    corpus(root)
    for kind in ("WAV", "PHN"):
        (root / f"TRAIN/DR8/MTCS0/SX37.{kind}").unlink()
    with pytest.raises(data.DataError, match="train speaker mtcs0 has 1 sentences, must have 2"):
        data.load_sequences("timit", path=root)
    (root / "TRAIN/DR8/MTCS0/SI648.PHN").unlink()
    with pytest.raises(data.DataError, match=r"sentence si648 must have a \.WAV and a \.PHN, lacks \.PHN"):
        data.load_sequences("timit", path=root)


def test_it_cannot_be_fetched_and_says_how_to_get_it(cache: Path, tmp_path: Path) -> None:
    for call in (data.fetch, data.load_sequences, data.verify):
        with pytest.raises(data.DataUnavailable, match=r"LDC93S1 from the Linguistic Data Consortium"):
            call("timit")
    with pytest.raises(data.DataUnavailable, match="lacks TRAIN, TEST"):
        data.load_sequences("timit", path=tmp_path)
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    with pytest.raises(data.DataUnavailable, match="lacks TRAIN, TEST"):  # folders of another data set
        data.load_sequences("timit", path=tmp_path)
    assert not cache.exists()
    assert "cannot be fetched" in {s.name: s.where for s in data.status()}["timit"]


@pytest.mark.parametrize(
    ("labels", "rule"),
    [
        ("", "must hold labels, holds none"),
        ("0 800 h#\n800 2000\n", r"line 2 \(='800 2000'\) must be: first sample"),
        ("0 8OO h#\n", r"line 1 .* must be: first sample"),
        ("-5 800 h#\n", "line 1"),
        ("0 800 h#\n700 900 sh\n", "line 2: phone from 700 to 900 must start where the one before ended"),
        ("0 800 h#\n800 800 sh\n", "phone from 800 to 800"),
        ("0 800 xyz\n", r"phone \(='xyz'\) must be one of the 61 labels"),
        ("0 800 h#\n900000 900800 sh\n", "must start within the recording, the last at 900000"),
    ],
)
def test_bad_labels_are_named(tmp_path: Path, labels: str, rule: str) -> None:
    path = tmp_path / "SX1.PHN"
    path.write_text(labels)
    with pytest.raises(data.DataError, match=rf"SX1\.PHN.*{rule}"):
        timit.read_labels(path, 30)


def test_frames_that_no_phone_covers_have_no_label(tmp_path: Path) -> None:
    path = tmp_path / "SX1.PHN"
    path.write_text("320 640 sh\r\n800 960 b\r\n")
    sh, b = CLASSES.index("sh"), CLASSES.index("b")
    assert timit.read_labels(path, 8).tolist() == [-1, -1, sh, sh, -1, b, -1, -1]


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "must be a NIST SPHERE or RIFF file, starts with b''"),
        (b"ajkg\x02\xfb and so on", "must be a NIST SPHERE or RIFF file"),
        (sphere(signal(0))[:-2], "promises 9600 bytes of samples, file holds 9598: it is cut off"),
        (sphere(signal(0))[:500], "length of the SPHERE header"),
        (sphere(signal(0), sample_rate="-i 8000"), r"sample rate \(=8000\) must be 16000"),
        (sphere(signal(0), sample_coding="-s26 pcm,embedded-shorten-v2.00"), r"sample_coding .* must be 'pcm'"),
        (sphere(signal(0), sample_count="-i many"), r"sample_count \(='many'\)"),
        (sphere(signal(0), sample_n_bytes="-i ²").replace("²".encode(), b"\xb2 "), r"sample_n_bytes \(='²'\)"),
        (sphere(signal(0), channel_count="-i 2", sample_count="-i 2400"), "must be one channel of 16-bit PCM, has 2"),
        (sphere(signal(0, 0)), "samples|decode"),
        (b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0", "must have a chunk of samples"),
    ],
)
def test_bad_audio_is_named(tmp_path: Path, content: bytes, rule: str) -> None:
    path = tmp_path / "SX1.WAV"
    path.write_bytes(content)
    with pytest.raises(data.DataError, match=rf"SX1\.WAV: .*{rule}"):
        timit.read_audio(path)


def test_audio_is_read_exactly(tmp_path: Path) -> None:
    samples = signal(9)
    (tmp_path / "a.WAV").write_bytes(sphere(samples))
    (tmp_path / "b.WAV").write_bytes(sphere(samples.byteswap(), sample_byte_format="-s2 10"))
    soundfile.write(str(tmp_path / "c.wav"), samples, RATE, subtype="PCM_16")
    for name in ("a.WAV", "b.WAV", "c.wav"):
        assert np.array_equal(timit.read_audio(tmp_path / name), samples), name
    cut = (tmp_path / "c.wav").read_bytes()[:-100]
    (tmp_path / "c.wav").write_bytes(cut)
    with pytest.raises(data.DataError, match="RIFF header promises 9600 bytes of samples, file holds 9500: it is cut off"):
        timit.read_audio(tmp_path / "c.wav")


def test_without_soundfile_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.WAV").write_bytes(sphere(signal(1)))
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(data.DataError, match=r"pip install 'wirebound\[speech\]'"):
        timit.read_audio(tmp_path / "a.WAV")


def test_the_command_says_how_to_get_it(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from wirebound_lab.cli.main import main

    assert main(["data", "fetch", "timit"]) != 0
    assert "LDC93S1" in capsys.readouterr().err
    assert main(["data", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in data.names())
