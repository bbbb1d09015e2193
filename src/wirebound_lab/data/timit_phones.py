"""TIMIT's 61 phone labels, the 39 classes they are folded into (Lee & Hon 1989), and its core test speakers.

The glottal stop q has no class: Lee and Hon leave it out, so its frames count neither in training nor in the error.
"""

from __future__ import annotations

FOLDED = {
    "ao": "aa",
    "ax": "ah", "ax-h": "ah",
    "axr": "er",
    "hv": "hh",
    "ix": "ih",
    "el": "l",
    "em": "m",
    "en": "n", "nx": "n",
    "eng": "ng",
    "zh": "sh",
    "ux": "uw",
    "bcl": "sil", "dcl": "sil", "gcl": "sil", "pcl": "sil", "tcl": "sil", "kcl": "sil",
    "h#": "sil", "pau": "sil", "epi": "sil",
}  # fmt: skip

CLASSES = (
    "aa", "ae", "ah", "aw", "ay", "b", "ch", "d", "dh", "dx", "eh", "er", "ey", "f", "g", "hh", "ih", "iy", "jh",
    "k", "l", "m", "n", "ng", "ow", "oy", "p", "r", "s", "sh", "sil", "t", "th", "uh", "uw", "v", "w", "y", "z",
)  # fmt: skip
NO_CLASS = "q"

PHONES = (*(name for name in CLASSES if name != "sil"), *FOLDED, NO_CLASS)

# Two men and one woman of each dialect region, from the corpus's own documentation (testset.doc).
CORE_TEST = frozenset((
    "mdab0", "mwbt0", "felc0", "mtas1", "mwew0", "fpas0", "mjmp0", "mlnt0", "fpkt0", "mlll0", "mtls0", "fjlm0",
    "mbpm0", "mklt0", "fnlp0", "mcmj0", "mjdh0", "fmgd0", "mgrt0", "mnjm0", "fdhc0", "mjln0", "mpam0", "fmld0",
))  # fmt: skip
TRAIN_SPEAKERS = 462
SENTENCES = 8  # of each speaker, without the two dialect sentences that all of them read (SA)


def class_of(phone: str) -> int | None:
    """The class of a label as an index, None for the glottal stop; KeyError for what is no label of TIMIT."""
    if phone == NO_CLASS:
        return None
    if phone not in PHONES:
        raise KeyError(phone)
    return CLASSES.index(FOLDED.get(phone, phone))
