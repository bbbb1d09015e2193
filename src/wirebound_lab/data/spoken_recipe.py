"""What is spoken by whom in the corpus ``spoken``, and the class of each of the synthesiser's phones.

28 voices read 40 sentences each for training; 8 others read the remaining 24 sentences for the test, so neither a voice
nor a sentence is in both parts. Speed and pitch vary from sentence to sentence. All of it follows from SEED.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np

from .timit_phones import CLASSES

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

# eSpeak NG's names, without stress marks, in American English. What TIMIT folds is folded (ʒ with ʃ, ɔ with ɑ). A vowel
# with r that the synthesiser gives as one phone has the class of the vowel. A glottal stop is a closure, so silence.
PHONES = {
    **dict.fromkeys(("_", "_:", "_!", "_|", "?"), "sil"),
    **dict.fromkeys(("0", "O", "O2", "O:", "A:", "A@", "A#", "O@", "o@"), "aa"),
    **dict.fromkeys(("a", "aa"), "ae"),
    **dict.fromkeys(("@", "@2", "@-", "@5", "a#", "V"), "ah"),
    **dict.fromkeys(("aI", "aI@", "aI3"), "ay"),
    **dict.fromkeys(("aU", "aU@"), "aw"),
    **dict.fromkeys(("E", "E2", "e@"), "eh"),
    **dict.fromkeys(("3", "3:"), "er"),
    **dict.fromkeys(("I", "I2", "I#", "i@", "i@3"), "ih"),
    **dict.fromkeys(("i", "i:"), "iy"),
    **dict.fromkeys(("U", "U@"), "uh"),
    **dict.fromkeys(("u", "u:"), "uw"),
    **dict.fromkeys(("r", "r-"), "r"),
    **dict.fromkeys(("l", "@L"), "l"),
    **dict.fromkeys(("n", "n-"), "n"),
    **dict.fromkeys(("t", "t2"), "t"),
    **dict.fromkeys(("j", ";"), "y"),
    **dict.fromkeys(("S", "Z"), "sh"),
    "t#": "dx", "eI": "ey", "oU": "ow", "OI": "oy", "tS": "ch", "dZ": "jh", "D": "dh", "T": "th", "N": "ng", "h": "hh",
    "b": "b", "d": "d", "f": "f", "g": "g", "k": "k", "m": "m", "p": "p", "s": "s", "v": "v", "w": "w", "z": "z",
}  # fmt: skip
_STRESS = "',%="


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
    for number, voice in enumerate(TRAIN_VOICES + TEST_VOICES):
        random = np.random.RandomState([SEED, number])
        test = voice in TEST_VOICES
        first = count - TEST_SENTENCES
        chosen = range(first, count) if test else sorted(random.permutation(first)[:SENTENCES_EACH].tolist())
        for sentence in chosen:
            speed, pitch = SPEEDS[random.randint(len(SPEEDS))], PITCHES[random.randint(len(PITCHES))]
            yield Line(voice, int(sentence), speed, pitch, test)


def class_of(phone: str) -> int:
    """The class of a phone as the synthesiser names it; KeyError if it is not in the table."""
    return CLASSES.index(PHONES[phone.lstrip(_STRESS)])


@lru_cache(maxsize=1)
def identity() -> str:
    """Eight digits that change with anything here: a corpus in the cache belongs to one recipe."""
    said = [VERSION, LANGUAGE, sentences(), [str(line) for line in lines()], sorted(PHONES.items())]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:8]
