"""TIMIT (LDC93S1): 3,696 + 192 read English utterances with hand-made phone labels, as its licence holders have it.

Layouts, in upper or lower case: that of the Linguistic Data Consortium, ``TRAIN|TEST/DR1/FCJF0/SX37.WAV`` and ``.PHN``;
and the flat one of the sample that NLTK passes on, ``dr1-fvmh0/sx206.wav`` and ``.phn``, which is only a part.

The training part is all of TRAIN without the SA sentences (462 speakers, 3,696 utterances), the test part is the core
test (24 speakers, 192 utterances). The sample has no parts of its own: speakers of regions 4 and 8 are its test part.
The 61 phone labels are folded into 39 classes (Lee & Hon 1989). The glottal stop q has no class: Lee and Hon leave it
out, so its frames count neither in training nor in the error.
Recordings are NIST SPHERE or RIFF files (16 kHz, mono, 16 bits). soundfile accepts truncated files, so headers are checked.

Licence: of the Linguistic Data Consortium; may not be passed on.
Citation: J. Garofolo, L. Lamel, W. Fisher, J. Fiscus, D. Pallett, N. Dahlgren, V. Zue: TIMIT acoustic-phonetic
continuous speech corpus, LDC93S1, 1993.
"""

import io
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .content import DataError, read_file, told_as
from .locate import DataKind
from .mfcc import RATE, STATIC, frame_centres, mfcc
from .sequences import NO_LABEL, TEST, TRAIN, SequenceDataset

_MOST_HEADER = 65_536
_MOST_SAMPLES = 60 * RATE  # a minute; the longest sentence of TIMIT has eight seconds
# Part and region, or the region of the flat layout; speaker, sentence, kind of file; all in lower case.
_SENTENCE = re.compile(r"(?:(train|test)/dr[1-8]/|dr([1-8])-)([fm][a-z]{3}\d)/(s[ix]\d{1,4})\.(wav|phn)")
_FLAT_TEST = ("4", "8")
_MOST_LABELS = 100_000  # bytes of a .PHN file

CLASSES = (
    "aa", "ae", "ah", "aw", "ay", "b", "ch", "d", "dh", "dx", "eh", "er", "ey", "f", "g", "hh", "ih", "iy", "jh",
    "k", "l", "m", "n", "ng", "ow", "oy", "p", "r", "s", "sh", "sil", "t", "th", "uh", "uw", "v", "w", "y", "z",
)  # fmt: skip
_FOLDED = {
    "ao": "aa", "ax": "ah", "ax-h": "ah", "axr": "er", "hv": "hh", "ix": "ih", "el": "l", "em": "m", "en": "n",
    "nx": "n", "eng": "ng", "zh": "sh", "ux": "uw", "bcl": "sil", "dcl": "sil", "gcl": "sil", "pcl": "sil", "tcl": "sil",
    "kcl": "sil", "h#": "sil", "pau": "sil", "epi": "sil",
}  # fmt: skip
# The class of each label as an index.
PHONES = {
    **{name: number for number, name in enumerate(CLASSES) if name != "sil"},
    **{phone: CLASSES.index(name) for phone, name in _FOLDED.items()},
    "q": NO_LABEL,
}
# Two men and one woman of each dialect region, from the corpus's own documentation (testset.doc).
CORE_TEST = frozenset((
    "mdab0", "mwbt0", "felc0", "mtas1", "mwew0", "fpas0", "mjmp0", "mlnt0", "fpkt0", "mlll0", "mtls0", "fjlm0",
    "mbpm0", "mklt0", "fnlp0", "mcmj0", "mjdh0", "fmgd0", "mgrt0", "mnjm0", "fdhc0", "mjln0", "mpam0", "fmld0",
))  # fmt: skip
TRAIN_SPEAKERS = 462
SENTENCES = 8  # of each speaker, without the two dialect sentences that all of them read (SA)


class Utterance(NamedTuple):
    part: str
    speaker: str
    sentence: str
    audio: Path
    labels: Path


class Timit(DataKind[SequenceDataset]):
    """The data set; ``partial`` accepts a corpus that lacks speakers or sentences."""

    name = "timit"
    subfolders = ("timit", "TIMIT", "timit/TIMIT", "timit/timit", "timit/data")
    advice = (
        "TIMIT is licensed and cannot be fetched: get LDC93S1 from the Linguistic Data Consortium"
        " (https://catalog.ldc.upenn.edu/LDC93S1) and unpack it; the folder must hold TRAIN and TEST."
    )

    def __init__(self, partial: bool = False) -> None:
        self.partial = partial

    def missing(self, folder: Path) -> list[str]:
        held = _held(folder)
        if any(re.fullmatch(r"dr[1-8]-[fm][a-z]{3}\d", name) for name in held):
            return []
        # Many data sets have folders of these names; only TIMIT's hold dialect regions.
        regions = {name: _held(folder / held.get(name.lower(), name)) for name in ("TRAIN", "TEST")}
        return [name for name, held in regions.items() if not any(re.fullmatch("dr[1-8]", region) for region in held)]

    def read(self, folder: Path, found: str) -> SequenceDataset:
        utterances = sorted(_find(folder), key=lambda u: (u.part != TRAIN, u.speaker, u.sentence))
        if not self.partial:
            _check_complete(utterances, folder)
        if not any(u.part == TRAIN for u in utterances):
            raise DataError(f"{folder}: must hold training utterances of TIMIT, holds none")
        features, labels = [], []
        for utterance in utterances:
            frames = mfcc(read_audio(utterance.audio))
            if len(frames) == 0:
                raise DataError(f"{utterance.audio}: must be longer than half a frame")
            features.append(frames)
            labels.append(read_labels(utterance.labels, len(frames)))
        lengths = np.array([len(part) for part in features], dtype=np.int64)
        parts, speakers = np.array([u.part for u in utterances]), np.array([u.speaker for u in utterances])
        return SequenceDataset(
            "timit", np.concatenate(features), np.ones(STATIC, dtype=np.float32), np.concatenate(labels), lengths,
            parts, CLASSES, found, speakers, np.array([f"{u.speaker}_{u.sentence}" for u in utterances]),
        )  # fmt: skip


def read_labels(path: Path, frames: int) -> NDArray[np.int16]:
    """The class of each frame: that of the phone which covers the centre of the frame."""
    phones: list[tuple[int, int, int]] = []
    for number, line in enumerate(read_file(path, _MOST_LABELS).decode("latin-1").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        where = f"{path}, line {number}"
        if len(words) != 3 or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words[:2]):
            raise DataError(f"{where} (={line[:60]!r}) must be: first sample, sample after the last, phone")
        start, end = int(words[0]), int(words[1])
        if not (phones[-1][1] if phones else 0) <= start < end:
            raise DataError(f"{where}: phone from {start} to {end} must start where the one before ended, or later")
        if words[2].lower() not in PHONES:
            raise DataError(f"{where}: phone (={words[2][:20]!r}) must be one of the 61 labels of TIMIT")
        phones.append((start, end, PHONES[words[2].lower()]))
    if not phones:
        raise DataError(f"{path}: must hold labels, holds none")
    starts, ends, classes = np.array(phones).T
    centres, last = frame_centres(frames), phones[-1][0]
    if last > centres[-1] + 80:
        raise DataError(f"{path}: phones must start within the recording, the last at {last}: is the audio cut off?")
    at = np.searchsorted(starts, centres, side="right") - 1
    covered = (at >= 0) & (centres < ends[at])
    return np.where(covered, classes[at], NO_LABEL).astype(np.int16)


def _held(folder: Path) -> dict[str, str]:
    """The names in a folder, by their lower-case form; none if it cannot be read."""
    try:
        return {name.lower(): name for name in os.listdir(folder)}
    except OSError:
        return {}


def _find(folder: Path) -> Iterator[Utterance]:
    """Every sentence that counts: without SA, and of TEST the core test only."""

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: must be a readable folder ({error.strerror or error})") from error

    pairs: dict[tuple[str, str, str, str], dict[str, Path]] = {}
    for place, inside, names in os.walk(folder, onerror=refuse, followlinks=True):
        above = Path(place).relative_to(folder)
        if len(above.parts) == 3:
            inside.clear()
        for name in names:
            # "SX37.WAV.wav", a second copy that some archives hold, does not match.
            found = _SENTENCE.fullmatch((above / name).as_posix().lower())
            if found and (found[1] != TEST or found[3] in CORE_TEST):
                part = found[1] or (TEST if found[2] in _FLAT_TEST else TRAIN)
                pairs.setdefault((part, found[3], found[4], place), {})[found[5]] = Path(place, name)
    for (part, speaker, sentence, place), pair in pairs.items():
        if len(pair) != 2:
            lacks = "PHN" if "wav" in pair else "WAV"
            raise DataError(f"{place}: sentence {sentence} must have a .WAV and a .PHN, lacks .{lacks}")
        yield Utterance(part, speaker, sentence, pair["wav"], pair["phn"])


def _check_complete(utterances: list[Utterance], folder: Path) -> None:
    advice = "; partial=True accepts a part of the corpus"
    spoken = Counter((utterance.part, utterance.speaker) for utterance in utterances)
    trained = sum(part == TRAIN for part, _ in spoken)
    if trained != TRAIN_SPEAKERS:
        raise DataError(f"{folder}: training speakers of TIMIT (={trained}) must be {TRAIN_SPEAKERS}{advice}")
    lacking = sorted(CORE_TEST - {speaker for part, speaker in spoken if part == TEST})
    if lacking:
        names = ", ".join(lacking)
        raise DataError(f"{folder}: core test of TIMIT must have {len(CORE_TEST)} speakers, lacks {names}{advice}")
    for (part, speaker), count in spoken.items():
        if count != SENTENCES:
            raise DataError(f"{folder}: {part} speaker {speaker} has {count} sentences, must have {SENTENCES}{advice}")


def read_audio(path: Path) -> NDArray[np.int16]:
    """The samples of a recording."""
    content = read_file(path, _MOST_HEADER + 2 * _MOST_SAMPLES)
    _check_samples(content, path)
    # OSError: its own library is missing
    with told_as(f"{path}: needs the package soundfile: pip install 'wirebound[speech]'", ImportError, OSError):
        import soundfile  # here: an optional package, and most runs need no audio
    # soundfile's own errors are RuntimeErrors
    rule = f"{path}: must be audio that soundfile can decode"
    with told_as(rule, RuntimeError, TypeError, ValueError), soundfile.SoundFile(io.BytesIO(content)) as sound:
        if sound.samplerate != RATE:
            raise DataError(f"{path}: sample rate (={sound.samplerate}) must be {RATE}")
        if sound.channels != 1 or sound.subtype != "PCM_16":
            raise DataError(f"{path}: must be one channel of 16-bit PCM, has {sound.channels} of {sound.subtype}")
        if not 1 <= sound.frames <= _MOST_SAMPLES:
            raise DataError(f"{path}: samples (={sound.frames}) must be in [1, {_MOST_SAMPLES}]")
        samples: NDArray[np.int16] = sound.read(dtype="int16")
    return samples


def _check_samples(content: bytes, path: Path) -> None:
    """Raise unless the file holds as many bytes of samples as its header promises."""
    kind = {b"NIST": "SPHERE", b"RIFF": "RIFF"}.get(content[:4])
    try:
        if kind is None or (kind == "SPHERE" and content[:8] != b"NIST_1A\n"):
            raise DataError(f"must be a NIST SPHERE or RIFF file, starts with {content[:8]!r}")
        promised, held = _sphere(content) if kind == "SPHERE" else _riff(content)
        if promised > held:
            raise DataError(f"{kind} header promises {promised} bytes of samples, file holds {held}: it is cut off")
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _sphere(content: bytes) -> tuple[int, int]:
    """A text header of fixed length, ``name -type value`` a line, then the samples."""
    length, most = content[8:16], min(_MOST_HEADER, len(content))
    if not length.strip().isdigit() or not 16 < int(length) <= most:
        raise DataError(f"length of the SPHERE header (={length!r}) must be in (16, {most}]")
    lines = content[16 : int(length)].decode("latin-1").split("end_head")[0].splitlines()
    fields = {line.split(" ")[0]: " ".join(line.split(" ")[2:]).strip() for line in lines}
    coding = fields.get("sample_coding", "pcm")
    if coding != "pcm":
        raise DataError(f"sample_coding (={coding!r}) must be 'pcm': unpack the file with NIST's w_decode first")
    promised = 1
    for name in ("sample_count", "sample_n_bytes", "channel_count"):
        value = fields.get(name, "")
        if not (value.isascii() and value.isdigit()) or len(value) > 12:  # "²" is a digit, too
            raise DataError(f"{name} (={value!r}) of the SPHERE header must be a whole number")
        promised *= int(value)
    return promised, len(content) - int(length)


def _riff(content: bytes) -> tuple[int, int]:
    """Chunks, each with a name and a length; the samples are in ``data``."""
    at = 12
    while at + 8 <= len(content):
        name, length = struct.unpack_from("<4sI", content, at)
        if name == b"data":
            return length, len(content) - at - 8
        at += 8 + length + length % 2
    raise DataError("must have a chunk of samples, the RIFF file has none: it is cut off")
