"""A corpus for those who have neither TIMIT nor ``speech``: sentences spoken by eSpeak NG, made on this machine.

Synthetic voices are far easier than people: it is for trying out, not for figures. 28 voices read 40 sentences each for
training; 8 others read the remaining 24 sentences for the test, so neither a voice nor a sentence is in both parts.
Speed and pitch vary from sentence to sentence. All of it follows from SEED.

Licence: the sentences have that of wirebound; eSpeak NG is GPL-3.0 and comes with espeakng-loader.
Citation: eSpeak NG, https://github.com/espeak-ng/espeak-ng.
"""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np

from .content import DataError, read_file
from .locate import DataKind, Route
from .sequences import SequenceDataset
from .speech import parse_phones

_LIMIT = 20_000_000  # bytes of the file; it has about 6 million
_UNPACKED_LIMIT = 40_000_000
_SECONDS = 900  # it takes about half a minute

LANGUAGE = "en-us"
TRAIN_VOICES = (
    "f1", "f2", "f3", "f5", "m1", "m2", "m3", "m4", "m6", "m7", "klatt", "klatt2", "klatt4", "Alex", "Alicia", "Andrea",
    "Andy", "Annie", "Gene", "Jacky", "Lee", "Mario", "Michael", "adam", "belinda", "benjamin", "boris", "david",
)  # fmt: skip
TEST_VOICES = ("f4", "m5", "m8", "klatt3", "Denis", "steph", "edward", "shelby")
TEST_SENTENCES = 24  # the last of the list
SENTENCES_EACH = 40
SPEEDS = (130, 150, 170, 190, 210)  # words a minute
PITCHES = (35, 45, 50, 55, 65)
SEED = 2018
VERSION = 1  # of everything that the rest of this file does not say

# For each class of TIMIT, eSpeak NG's names without stress marks, in American English. What TIMIT folds is folded (ʒ
# with ʃ, ɔ with ɑ). A vowel with r that comes as one phone has the vowel's class. A glottal stop is a closure: silence.
_NAMES = {
    "sil": "_ _: _! _| ?", "aa": "0 O O2 O: A: A@ A# O@ o@", "ae": "a aa", "ah": "@ @2 @- @5 a# V", "ay": "aI aI@ aI3",
    "aw": "aU aU@", "eh": "E E2 e@", "er": "3 3:", "ih": "I I2 I# i@ i@3", "iy": "i i:", "uh": "U U@", "uw": "u u:",
    "r": "r r-", "l": "l @L", "n": "n n-", "t": "t t2", "y": "j ;", "sh": "S Z", "dx": "t#", "ey": "eI", "ow": "oU",
    "oy": "OI", "ch": "tS", "jh": "dZ", "dh": "D", "th": "T", "ng": "N", "hh": "h", "b": "b", "d": "d", "f": "f",
    "g": "g", "k": "k", "m": "m", "p": "p", "s": "s", "v": "v", "w": "w", "z": "z",
}  # fmt: skip
PHONES = {name: phone for phone, names in _NAMES.items() for name in names.split()}


class Spoken(DataKind[SequenceDataset]):
    name = "spoken"
    subfolders = ("spoken",)
    obtained = "made"

    def kept(self) -> list[str]:
        return [f"spoken-{identity()}.npz"]

    def read(self, folder: Path, found: str) -> SequenceDataset:
        path = folder / self.kept()[0]
        return parse_phones(read_file(path, _LIMIT), self.name, str(path), found, _UNPACKED_LIMIT)

    def routes(self, work: Path) -> Iterator[Route]:
        yield "eSpeak NG", lambda: _make(work / self.kept()[0])


def _make(target: Path) -> None:
    command = [sys.executable, "-m", f"{__package__}.espeak", str(target)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise DataError(f"eSpeak NG: must end within {_SECONDS} s") from None
    if done.returncode != 0:
        raise DataError(f"eSpeak NG: exit code {done.returncode} ({done.stderr.strip()[-500:] or 'no message'})")


@dataclass(frozen=True)
class Line:
    """One utterance: who says what, and how."""

    voice: str
    number: int  # of the sentence
    speed: int
    pitch: int
    test: bool

    @property
    def name(self) -> str:
        return f"{self.voice}_{self.number:03d}"


def sentences() -> list[str]:
    text = resources.files(__package__).joinpath("spoken_sentences.txt").read_text(encoding="utf-8")
    return text.split("\n")[:-1]


def lines() -> Iterator[Line]:
    """All utterances, in the order in which they are spoken."""
    count = len(sentences())
    first = count - TEST_SENTENCES
    for number, voice in enumerate(TRAIN_VOICES + TEST_VOICES):
        random = np.random.RandomState([SEED, number])
        test = voice in TEST_VOICES
        chosen = range(first, count) if test else sorted(random.permutation(first)[:SENTENCES_EACH].tolist())
        for sentence in chosen:
            speed, pitch = SPEEDS[random.randint(len(SPEEDS))], PITCHES[random.randint(len(PITCHES))]
            yield Line(voice, int(sentence), speed, pitch, test)


def class_name(phone: str) -> str:
    """The class of a phone as the synthesiser names it, with stress marks; KeyError if it is not in the table."""
    return PHONES[phone.lstrip("',%=")]


@lru_cache(maxsize=1)
def identity() -> str:
    """Eight digits that change with anything here: a corpus in the cache belongs to one recipe."""
    said = [VERSION, LANGUAGE, sentences(), [str(line) for line in lines()], sorted(PHONES.items())]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:8]
