"""The corpus that eSpeak NG speaks: its recipe, its labels, and that it comes out the same every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from wirebound_lab import data
from wirebound_lab.data import espeak, spoken
from wirebound_lab.data.espeak import Speech
from wirebound_lab.data.speech import parse_phones
from wirebound_lab.data.timit import CLASSES

FEW = """
import sys
from wirebound_lab.data.espeak import make
from wirebound_lab.data.spoken import lines
few = [line for line in lines() if line.voice in ("f2", "klatt", "steph") and line.number % 12 == 7]
sys.stdout.buffer.write(make(few))
"""


def test_no_voice_and_no_sentence_is_in_both_parts() -> None:
    lines = list(spoken.lines())
    train, test = [line for line in lines if not line.test], [line for line in lines if line.test]
    assert (len(train), len(test)) == (28 * 40, 8 * 24)
    assert not {line.voice for line in train} & {line.voice for line in test}
    assert not {line.number for line in train} & {line.number for line in test}
    assert len({line.name for line in lines}) == len(lines)
    texts = spoken.sentences()
    assert len(texts) == len(set(texts)) == 120
    assert {line.number for line in lines} == set(range(120))


def test_every_class_has_a_phone() -> None:
    assert set(spoken.PHONES.values()) == set(CLASSES)
    assert spoken.class_name("'aU") == spoken.class_name("aU") == "aw"


def test_a_phone_lasts_until_the_next() -> None:
    speech = Speech(np.zeros(22050, dtype=np.int16), 22050, ((2205, "s"), (4410, "'i:"), (8820, "_:")))
    labels = espeak.frame_labels(speech, 100)
    names = [CLASSES[label] for label in labels]
    assert names == ["sil"] * 10 + ["s"] * 10 + ["iy"] * 20 + ["sil"] * 60
    with pytest.raises(data.DataError, match=r"phone \(='Q!'\) of eSpeak NG must be in the table"):
        espeak.frame_labels(Speech(speech.samples, 22050, ((0, "Q!"),)), 3)


def test_resampling_keeps_tones_and_length() -> None:
    time = np.arange(22050)
    fade = np.hanning(22050)  # speech starts and ends in silence
    tone = (9000 * fade * np.sin(2 * np.pi * 1000 * time / 22050)).astype(np.int16)
    got = espeak.resample(tone, 22050)
    assert len(got) == 16000
    expected = 9000 * np.hanning(16000) * np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)
    assert np.abs(got - expected).max() < 5
    too_high = (9000 * fade * np.sin(2 * np.pi * 9500 * time / 22050)).astype(np.int16)
    assert np.abs(espeak.resample(too_high, 22050)).max() < 50


@pytest.mark.slow
def test_the_same_in_every_process() -> None:
    pytest.importorskip("espeakng_loader")
    first, second = (
        subprocess.run([sys.executable, "-c", FEW], capture_output=True, check=True, timeout=120).stdout for _ in range(2)
    )
    assert first == second
    made = parse_phones(first, "spoken", "few", "here", 10_000_000)
    assert set(made.speakers.tolist()) == {"f2", "klatt", "steph"}
    assert set(made.speakers[made.part("test")].tolist()) == {"steph"}
    # Louder where there is a vowel than where there is silence: labels and sound belong together.
    energy = made.frames[:, 12] * made.step[12]
    vowels = np.isin(made.labels, [CLASSES.index(name) for name in ("aa", "ae", "ay", "ow", "iy", "eh")])
    silent = made.labels == CLASSES.index("sil")
    assert vowels.any()
    assert silent.any()
    assert np.median(energy[vowels]) > np.median(energy[silent]) + 4


def test_made_once_into_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from speech_helpers import npz, phone_arrays

    made = []
    (file_name,) = spoken.Spoken().kept()

    def make(target: Path) -> None:
        made.append(target)
        target.write_bytes(npz(phone_arrays()))

    monkeypatch.setattr(spoken, "_make", make)
    assert "can be made into" in {s.name: s.where for s in data.status()}["spoken"]
    first = data.load_sequences("spoken")
    assert first.source == f"{cache / 'spoken'} (cache)"
    assert [p.name for p in (cache / "spoken").iterdir()] == [file_name]
    data.load_sequences("spoken")
    assert data.fetch("spoken").state == "verified"
    assert len(made) == 1
    path = cache / "spoken" / file_name
    path.write_bytes(path.read_bytes()[:-5])
    assert len(data.load_sequences("spoken").utterances) == 6  # damaged: made again
    assert len(made) == 2


def test_a_synthesiser_that_is_not_there(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "espeakng_loader.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(data.__file__).parents[2])]))
    with pytest.raises(data.DataUnavailable, match=r"eSpeak NG: .*pip install 'wirebound\[espeak\]'"):
        data.load_sequences("spoken")
    assert not list((cache / "spoken").iterdir())
