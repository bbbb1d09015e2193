"""What the speech tests share: a small file of labelled frames, and .npz files made by hand, good and bad."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np


def phone_arrays(utterances: int = 6) -> dict[str, Any]:
    random = np.random.RandomState(0)
    lengths = np.arange(3, 3 + utterances, dtype=np.int32)
    total = int(lengths.sum())
    return {
        "mfcc": random.randint(-300, 300, (total, 13)).astype(np.int16),
        "step": np.linspace(0.1, 0.4, 13).astype(np.float32),
        "labels": (np.arange(total) % 3).astype(np.uint8),
        "lengths": lengths,
        "classes": np.array(["AA", "B", "SIL"]),
        "is_test": np.arange(utterances) % 3 == 2,
        "utt": np.array([f"u{i}" for i in range(utterances)]),
        "speaker": np.array([f"s{i % 2}" for i in range(utterances)]),
    }


def npz(arrays: dict[str, Any], packed: bool = True) -> bytes:
    raw = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(raw, **arrays)
    return raw.getvalue()


def npy(descr: str, shape: str, body: bytes, version: bytes = b"\x01\x00") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + body


def zipped(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return raw.getvalue()
