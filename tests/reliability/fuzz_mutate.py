"""Mutations for the fuzz tests: of bytes, of JSON values, and of sealed checkpoint files."""

from __future__ import annotations

import copy
import json
import math
import random
import struct
from collections.abc import Sequence
from typing import Any

from wirebound.checkpoint.container import DIGEST, DOCUMENT, METADATA, content_hash, pack_header

NUMBERS = (0, 1, -1, 2, 7, 127, 128, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32, 2**48, 2**62, 2**63 - 1, 2**63, 2**64)
TOKENS = (b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"true", b"-", b"1e999", b"NaN", b"\\u0000", b"\xff", b"=", b"\n")
VALUES = (None, True, False, *NUMBERS, 10**400, -0.0, 1.5, 1e308, "", "x", "nan", "é" * 50, [], {}, [[]], [0] * 100, {"$": 1})
WIDTHS = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "I8": 1, "BOOL": 1, "U8": 1}
FLOATS = (float("nan"), float("inf"), -1.0, 1e38, -0.0)


def mutate_bytes(content: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """One to four random changes."""
    raw = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(raw) + 1)
        span = chance.choice((1, 2, 4, 8, 16, 100))
        match chance.randrange(9):
            case 0 if raw:
                raw[at % len(raw)] ^= 1 << chance.randrange(8)
            case 1 if raw:
                raw[at % len(raw)] = chance.randrange(256)
            case 2:
                del raw[at : at + span]
            case 3:
                raw[at:at] = chance.randbytes(span)
            case 4:
                raw[at:at] = raw[at : at + span] * chance.choice((1, 2, 50))
            case 5:
                del raw[at:]
            case 6:
                number, width = chance.choice(NUMBERS), chance.choice((1, 2, 4, 8))
                order = chance.choice(("little", "big"))
                raw[at : at + width] = (number % (1 << (8 * width))).to_bytes(width, order)
            case 7:
                raw[at:at] = chance.choice(TOKENS)
            case _:
                other = chance.choice(others)
                start = chance.randrange(len(other) + 1)
                raw[at : at + span] = other[start : start + span]
    return bytes(raw)


def mutate_value(value: Any, chance: random.Random) -> Any:
    """A JSON value with something in it replaced, removed, doubled or renamed."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    for _ in range(chance.choice((1, 1, 2))):
        if not places:
            return chance.choice(VALUES)
        holder, key = chance.choice(places)
        try:
            match chance.randrange(6):
                case 0:
                    del holder[key]
                case 1 if isinstance(holder, dict):
                    holder[chance.choice(("", "$", "x", "name", "items", "0"))] = holder.pop(key)
                case 2 if isinstance(holder, list):
                    holder.insert(chance.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
                case 3:
                    other, name = chance.choice(places)
                    holder[key] = copy.deepcopy(other[name])
                case _:
                    holder[key] = copy.deepcopy(chance.choice(VALUES))
        except (KeyError, IndexError):  # gone by an earlier change
            pass
    return value


def _places(value: Any):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)


class Sealed:
    """A checkpoint file that can be changed anywhere and still has the right checksum."""

    def __init__(self, raw: bytes) -> None:
        end = 8 + int.from_bytes(raw[:8], "little")
        self.header = json.loads(raw[8:end])
        self.document = json.loads(self.header[METADATA][DOCUMENT])
        self.data = raw[end:]

    def mutate(self, chance: random.Random) -> bytes:
        header, document, data = self.header, self.document, bytearray(self.data)
        match chance.randrange(8):
            case 0:
                tensors = mutate_value({k: v for k, v in header.items() if k != METADATA}, chance)
                header = {METADATA: header[METADATA], **(tensors if isinstance(tensors, dict) else {})}
            case 1 | 2:
                document = mutate_value(document, chance)
            case 3:
                at = chance.randrange(len(data))
                data[at] = chance.randrange(256)
            case 4 | 5:
                header, data = self._replace_tensor(chance)
            case _:
                self._change_tensor(data, chance)
        header = {**header, METADATA: {**header[METADATA], DOCUMENT: json.dumps(document)}}
        digest = content_hash(header)
        digest.update(data)
        header[METADATA][DIGEST] = digest.hexdigest()
        packed = pack_header(header)
        return len(packed).to_bytes(8, "little") + packed + data

    def _replace_tensor(self, chance: random.Random) -> tuple[dict[str, Any], bytearray]:
        """One tensor, or all of a name, of another type, length or shape, with as many bytes as that takes."""
        names = [name for name in self.header if name != METADATA]
        chosen = chance.choice(names)
        ending = chosen.rpartition("/")[2] if chance.random() < 0.5 else chosen
        lengths = sorted({math.prod(self.header[name]["shape"]) for name in names})
        dtype, length = chance.choice((self.header[chosen]["dtype"], *WIDTHS)), chance.choice((0, 1, *lengths))
        fill = chance.choice((b"\0", b"\1", b"\xff", b"\x7f"))
        header: dict[str, Any] = {METADATA: self.header[METADATA]}
        data = bytearray()
        for name in sorted(names, key=lambda name: self.header[name]["data_offsets"]):
            entry = dict(self.header[name])
            raw = self.data[slice(*entry["data_offsets"])]
            if name == chosen or name.endswith("/" + ending):
                shape = chance.choice(([length], [1, length], [length, 1], entry["shape"]))
                size = math.prod(shape) * WIDTHS[dtype]
                raw = (raw[:size] if chance.random() < 0.5 else b"").ljust(size, fill)
                entry |= {"dtype": dtype, "shape": shape}
            header[name] = {**entry, "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        return header, data

    def _change_tensor(self, data: bytearray, chance: random.Random) -> None:
        entry = self.header[chance.choice([name for name in self.header if name != METADATA])]
        start, end = entry["data_offsets"]
        width = WIDTHS[entry["dtype"]]
        if start == end:
            return
        at = start + width * chance.randrange((end - start) // width)
        if entry["dtype"] == "F32":
            data[at : at + 4] = struct.pack("<f", chance.choice(FLOATS))
        elif chance.random() < 0.3 and at + 2 * width <= end:
            data[at : at + width], data[at + width : at + 2 * width] = data[at + width : at + 2 * width], data[at : at + width]
        else:
            data[at : at + width] = (chance.choice(NUMBERS) % (1 << (8 * width))).to_bytes(width, "little")
