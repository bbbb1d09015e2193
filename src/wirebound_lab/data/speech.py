"""speechocean762: 2,498 + 2,492 read English utterances, 250 speakers, MFCC and phone of every 10 ms, 38 classes.

Licence: CC BY 4.0; features and phone times (by forced alignment) made from the corpus.
Citation: J. Zhang, Z. Zhang, Y. Wang, Z. Yan, Q. Song, Y. Huang, K. Li, D. Povey, Y. Wang: speechocean762: an
open-source non-native English speech corpus for pronunciation assessment, Interspeech 2021.

Its .npz has the form that ``spoken`` uses, too. The sizes that an archive claims are checked before NumPy allocates them.
"""

import io
import math
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .content import DataError, File, read_known, told_as
from .locate import DataKind
from .mfcc import STATIC
from .sequences import TEST, TRAIN, SequenceDataset

_QUANTA = 50.0  # steps of quantisation in a standard deviation
_MOST_CLASSES = 255
_FORMAT = {  # type and shape
    "mfcc": ("int16", ("frames", "numbers")),  # all utterances end to end; the value is mfcc · step
    "step": ("float32", ("numbers",)),  # > 0
    "labels": ("uint8", ("frames",)),  # class of each frame, index into classes
    "lengths": ("int32", ("utterances",)),  # frames of each utterance
    "classes": ("text", ("classes",)),  # names of the classes
    "is_test": ("bool", ("utterances",)),  # whether the utterance is of the test part
    "utt": ("text", ("utterances",)),
    "speaker": ("text", ("utterances",)),
    "age": ("uint8", ("utterances",)),  # of the speaker; optional, as the next
    "gender": ("text", ("utterances",)),
}
_OPTIONAL = ("age", "gender")
_MOST_DIRECTORY = 4096  # bytes of an archive's list of members
_UNPACKED_LIMIT = 64_000_000


class Speech(DataKind[SequenceDataset]):
    name = "speech"
    subfolders = ("speech",)
    files = (
        File("so762_phones.npz", 28_123_693, "f8fea46f61ba0149726c4a6379224a07a2aa8f23fd2e5317d3fabb80ff1df020"),
    )
    advice = (
        "It is one file, speech/so762_phones.npz, that is passed on by hand and has no public address;"
        " 'spoken' is a corpus of the same form that can be made on any machine."
    )

    def read(self, folder: Path, found: str) -> SequenceDataset:
        path = folder / self.files[0].name
        return parse_phones(read_known(path, self.files[0]), self.name, str(path), found, _UNPACKED_LIMIT)


def parse_phones(content: bytes, name: str, where: str, found: str, limit: int) -> SequenceDataset:
    """The data set in a file's content; ``where`` names the file in errors, ``found`` becomes its source."""
    arrays = parse_npz(content, where, limit)
    _check(arrays, where)
    try:
        return SequenceDataset(
            name, arrays["mfcc"], arrays["step"], arrays["labels"].astype(np.int16), arrays["lengths"].astype(np.int64),
            parts=np.where(arrays["is_test"], TEST, TRAIN), class_names=tuple(arrays["classes"].tolist()), source=found,
            speakers=arrays["speaker"], utterances=arrays["utt"],
        )  # fmt: skip
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def pack_phones(
    features: NDArray[np.float32], labels: NDArray[Any], lengths: NDArray[Any], classes: tuple[str, ...],
    is_test: NDArray[Any], utterances: list[str], speakers: list[str],
) -> bytes:  # fmt: skip
    """The content of such a file; the same arguments give the same bytes."""
    deviation = features.std(0, dtype=np.float64)
    # Far values must fit into 16 bits, whatever the deviation.
    step = np.maximum(deviation / _QUANTA, np.abs(features).max(0) / 32_000).astype(np.float32)
    step[step <= 0] = 1.0
    raw = io.BytesIO()
    np.savez_compressed(
        raw, mfcc=np.rint(features / step).astype(np.int16), step=step, labels=np.asarray(labels, dtype=np.uint8),
        lengths=np.asarray(lengths, dtype=np.int32), classes=np.array(classes),
        is_test=np.asarray(is_test, dtype=bool), utt=np.array(utterances), speaker=np.array(speakers),
    )  # fmt: skip
    return raw.getvalue()


def parse_npz(content: bytes, where: str, limit: int) -> dict[str, NDArray[Any]]:
    """The arrays in an .npz, by name; unpacked they may take ``limit`` bytes in all."""
    end = content[-22:]  # the record at the end of a zip without a comment
    if len(end) < 22 or end[:4] != b"PK\x05\x06":
        raise DataError(f"{where}: must end as an .npz ends; is it cut off?")
    if int.from_bytes(end[12:16], "little") > _MOST_DIRECTORY or content[-42:-38] == b"PK\x06\x07":
        raise DataError(f"{where}: must list its arrays in at most {_MOST_DIRECTORY} bytes")
    # A damaged archive or header raises whatever zipfile, zlib or tokenize raise.
    with told_as(f"{where}: must be an intact .npz", Exception), zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if len({member.filename for member in members}) != len(members):
            raise DataError(f"{where}: must hold each array once, holds one twice")
        unpacked = sum(member.file_size for member in members)
        if unpacked > limit:
            raise DataError(f"{where}: must unpack to at most {limit} bytes, claims {unpacked}")
        arrays = {}
        for member in members:
            name, form = member.filename, member.compress_type
            if not re.fullmatch(r"[a-z_]{1,40}\.npy", name):
                raise DataError(f"{where}: members must be arrays (NAME.npy), one is {name[:60]!r}")
            if form not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others unpack without a bound
                raise DataError(f"{where}:{name}: must be stored or deflated, is of type {form}")
            with archive.open(member) as stream:  # read with a bound: the archive may hold more than it claims
                array = _parse_npy(stream.read(member.file_size + 1), f"{where}:{name}")
            arrays[name.removesuffix(".npy")] = array
        return arrays


def _parse_npy(content: bytes, where: str) -> NDArray[Any]:
    stream = io.BytesIO(content)
    if content[:8] != b"\x93NUMPY\x01\x00":
        raise DataError(f"{where}: must be an .npy of version 1.0, starts with {content[:8].hex()}")
    with told_as(f"{where}: header must be as NumPy writes it", Exception):
        np.lib.format.read_magic(stream)
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "biufU" or dtype.itemsize == 0:
        raise DataError(f"{where}: type (={dtype.str!r}) must be truth, numbers or text")
    promised, held = math.prod(shape) * dtype.itemsize, len(content) - stream.tell()
    if promised != held:
        raise DataError(f"{where}: header promises {promised} bytes ({dtype.str}, shape {shape}), there are {held}")
    array: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    if dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise DataError(f"{where}: truth must be 0 or 1, one is {array.view(np.uint8).max()}")
    if dtype.kind == "U" and array.size:
        points = array.reshape(-1).view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if points.max() > 0x10FFFF or ((points >= 0xD800) & (points <= 0xDFFF)).any():
            raise DataError(f"{where}: text must be of Unicode characters")
    return array


def _check(arrays: dict[str, NDArray[Any]], where: str) -> None:
    lacking = [name for name in _FORMAT if name not in arrays and name not in _OPTIONAL]
    unknown = [name for name in arrays if name not in _FORMAT]
    if lacking or unknown:
        raise DataError(f"{where}: arrays must be {', '.join(_FORMAT)}; lacks {lacking}, holds {unknown[:5]} as well")
    frames, count, classes = (arrays[name].size for name in ("labels", "lengths", "classes"))
    extents = {"frames": frames, "utterances": count, "classes": classes, "numbers": STATIC}
    for name, array in arrays.items():
        kind, shape = _FORMAT[name][0], tuple(extents[axis] for axis in _FORMAT[name][1])
        found = "text" if array.dtype.kind == "U" else array.dtype.name
        if found != kind:
            raise DataError(f"{where}: type of {name} (={found}) must be {kind}")
        if array.shape != shape:
            raise DataError(f"{where}: shape of {name} (={array.shape}) must be {shape}")
    step, names = arrays["step"], arrays["classes"].tolist()
    if frames < 1 or count < 1 or not 1 <= classes <= _MOST_CLASSES:
        given = f"frames (={frames}), utterances (={count}) and classes (={classes})"
        raise DataError(f"{where}: {given} must be at least 1, classes at most {_MOST_CLASSES}")
    if not (np.isfinite(step).all() and (step > 0).all() and (step < 1e6).all()):
        raise DataError(f"{where}: step (={step.tolist()}) must be finite numbers in (0, 1e6)")
    if len(set(names)) != classes or "" in names:
        raise DataError(f"{where}: classes must have different names")
