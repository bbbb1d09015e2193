"""Speech features: 12 mel-frequency cepstral coefficients and the log energy of a frame, and their differences.

A frame is 25 ms under a Hamming window, one every 10 ms, frame t centred on sample 160 t + 80 (16 kHz). Samples count
in steps of a 16-bit recording, so that the floor of all logarithms, 1, is the power of one such step.

    pre-emphasis 0.97 → window → |FFT-512|² → 26 triangular mel filters, 0-8000 Hz → log → orthonormal DCT-II
    → coefficients 1-12 → lifter 22; energy = log of the sum of squares of the raw 400-sample window
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATE = 16_000  # samples a second
STEP = 160  # samples between frames
WINDOW = 400
FFT = 512
FILTERS = 26
CEPSTRA = 12
LIFTER = 22
PRE_EMPHASIS = 0.97
STATIC = CEPSTRA + 1  # numbers of a frame, without differences
FEATURES = 3 * STATIC

_REACH = 2  # frames on either side that a difference looks at
_FLOOR = 1.0
_BLOCK = 4096  # frames at a time, so that an hour of speech needs no more memory than a minute

Float = NDArray[np.float32]


def frame_count(samples: int) -> int:
    """How many frames have their centre within ``samples`` samples."""
    return max(0, -(-(samples - STEP // 2) // STEP))


def frame_centres(frames: int) -> NDArray[np.int64]:
    """The sample in the middle of each frame."""
    return np.arange(frames, dtype=np.int64) * STEP + STEP // 2


def mfcc(signal: NDArray[Any]) -> Float:
    """[T, 13]: coefficients 1-12 and log energy of each frame of a 16 kHz signal in 16-bit steps, silent beyond its ends."""
    samples = np.asarray(signal, dtype=np.float64)
    if samples.ndim != 1:
        raise ValueError(f"signal (of shape {samples.shape}) must have one dimension")
    frames = frame_count(len(samples))
    emphasised = samples.copy()
    emphasised[1:] -= PRE_EMPHASIS * samples[:-1]
    raw, emphasised = _padded(samples, frames), _padded(emphasised, frames)
    result = np.empty((frames, STATIC), dtype=np.float32)
    for start in range(0, frames, _BLOCK):
        block = slice(start, min(start + _BLOCK, frames))
        spectrum = np.fft.rfft(emphasised[block] * np.hamming(WINDOW), FFT)
        power = spectrum.real**2 + spectrum.imag**2
        result[block, :CEPSTRA] = np.log(np.maximum(power @ mel_filters().T, _FLOOR)) @ _cosines().T
        result[block, CEPSTRA] = np.log(np.maximum((raw[block] ** 2).sum(1), _FLOOR))
    return result


def differences(features: Float, lengths: NDArray[np.int64]) -> Float:
    """slope[t] = Σ_k k (x[t+k] − x[t−k]) / 2 Σ_k k², k = 1, 2, for utterances end to end; their ends are continued."""
    ends = np.cumsum(lengths)
    first, last = np.repeat(ends - lengths, lengths), np.repeat(ends - 1, lengths)
    here = np.arange(len(features))
    slope = np.zeros_like(features)
    for k in range(1, _REACH + 1):
        ahead, behind = np.minimum(here + k, last), np.maximum(here - k, first)
        slope += k * (features[ahead] - features[behind])
    slope /= 2 * sum(k * k for k in range(1, _REACH + 1))
    return slope


def with_differences(features: Float, lengths: NDArray[np.int64]) -> Float:
    """[N, 3F]: the features, their differences, and the differences of those."""
    once = differences(features, lengths)
    return np.concatenate([features, once, differences(once, lengths)], axis=1)


def mel(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mel scale: 1000 mel are 1000 Hz."""
    return 2595.0 * np.log10(1.0 + hertz / 700.0)


@lru_cache(maxsize=1)
def mel_filters() -> NDArray[np.float64]:
    """[26, 257]: triangles that are equally wide on the mel scale and overlap by half."""
    bins = mel(np.arange(FFT // 2 + 1) * RATE / FFT)
    edges = np.linspace(0.0, mel(np.array([RATE / 2]))[0], FILTERS + 2)
    left, middle, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (bins - left) / (middle - left), (right - bins) / (right - middle)
    return np.maximum(0.0, np.minimum(rising, falling))


@lru_cache(maxsize=1)
def _cosines() -> NDArray[np.float64]:
    """[12, 26]: rows 1-12 of the orthonormal DCT-II, times the lifter."""
    n = np.arange(1, CEPSTRA + 1)[:, None]
    basis = np.sqrt(2.0 / FILTERS) * np.cos(np.pi * n * (2 * np.arange(FILTERS) + 1) / (2 * FILTERS))
    return basis * (1.0 + LIFTER / 2 * np.sin(np.pi * n / LIFTER))


def _padded(samples: NDArray[np.float64], frames: int) -> NDArray[np.float64]:
    """[frames, 400]: the window of each frame, a view."""
    before = WINDOW // 2 - STEP // 2
    padded = np.zeros(max(WINDOW, (frames - 1) * STEP + WINDOW))
    kept = samples[: len(padded) - before]
    padded[before : before + len(kept)] = kept
    return np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::STEP][:frames]
