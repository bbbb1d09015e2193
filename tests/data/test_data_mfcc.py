"""Speech features against a slow implementation that is written from the definition, and against what must be so."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

from wirebound_lab.data import mfcc as features


def slow_mfcc(signal: list[float], frame: int) -> list[float]:
    """One frame, sample by sample."""
    start = 160 * frame + 80 - 200

    def at(i: int) -> float:
        return signal[i] if 0 <= i < len(signal) else 0.0

    def emphasised(i: int) -> float:
        if not 0 <= i < len(signal):
            return 0.0
        return at(i) - (0.97 * at(i - 1) if i > 0 else 0.0)

    window = [(0.54 - 0.46 * math.cos(2 * math.pi * n / 399)) * emphasised(start + n) for n in range(400)]
    turn = [cmath.exp(-2j * math.pi * n / 512) for n in range(512)]
    power = [abs(sum(w * turn[k * n % 512] for n, w in enumerate(window))) ** 2 for k in range(257)]

    def mel(f: float) -> float:
        return 2595 * math.log10(1 + f / 700)

    width = mel(8000) / 27
    logs = []
    for m in range(26):
        centre = (m + 1) * width
        weights = [max(0.0, 1 - abs(mel(k * 31.25) - centre) / width) for k in range(257)]
        logs.append(math.log(max(1.0, sum(a * b for a, b in zip(weights, power, strict=True)))))
    cepstra = []
    for n in range(1, 13):
        c = math.sqrt(2 / 26) * sum(v * math.cos(math.pi * n * (m + 0.5) / 26) for m, v in enumerate(logs))
        cepstra.append(c * (1 + 11 * math.sin(math.pi * n / 22)))
    energy = sum(at(start + n) ** 2 for n in range(400))
    return [*cepstra, math.log(max(1.0, energy))]


def test_agrees_with_the_slow_one() -> None:
    random = np.random.RandomState(0)
    signal = np.cumsum(random.randint(-900, 900, 1300)).astype(np.int16)
    fast = features.mfcc(signal)
    assert fast.shape == (8, 13)
    assert fast.dtype == np.float32
    for frame in (0, 1, 4, 7):  # both ends, where the window reaches beyond the signal, and the middle
        assert fast[frame] == pytest.approx(slow_mfcc(signal.tolist(), frame), abs=1e-3)


@pytest.mark.parametrize("hertz", [150, 440, 1000, 2500, 6000])
def test_a_tone_lands_in_the_filter_of_its_frequency(hertz: int) -> None:
    signal = 8000 * np.sin(2 * np.pi * hertz * np.arange(400) / 16000)
    power = np.abs(np.fft.rfft(signal * np.hamming(400), 512)) ** 2
    strongest = int(np.argmax(features.mel_filters() @ power))
    width = 2595 * math.log10(1 + 8000 / 700) / 27
    assert abs(2595 * math.log10(1 + hertz / 700) / width - (strongest + 1)) <= 0.55


def test_louder_moves_the_energy_alone() -> None:
    signal = np.random.RandomState(1).normal(0, 300, 4000)
    quiet, loud = features.mfcc(signal), features.mfcc(4 * signal)
    assert loud[:, 12] - quiet[:, 12] == pytest.approx(2 * math.log(4), abs=1e-4)
    assert loud[:, :12] == pytest.approx(quiet[:, :12], abs=1e-3)  # a constant has no part in coefficients 1-12


@pytest.mark.parametrize(("samples", "frames"), [(0, 0), (80, 0), (81, 1), (240, 1), (241, 2), (16000, 100)])
def test_frames_have_their_centre_in_the_signal(samples: int, frames: int) -> None:
    assert features.frame_count(samples) == frames
    assert features.mfcc(np.ones(samples)).shape == (frames, 13)
    assert all(centre < samples for centre in features.frame_centres(frames))


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    signal = np.random.RandomState(2).normal(0, 300, 5000)
    whole = features.mfcc(signal)
    monkeypatch.setattr(features, "_BLOCK", 7)
    assert np.array_equal(features.mfcc(signal), whole)


def test_digital_silence_is_finite() -> None:
    assert np.array_equal(features.mfcc(np.zeros(1000)), np.zeros((6, 13)))


def slow_slopes(x: np.ndarray) -> np.ndarray:
    padded = np.concatenate([x[:1], x[:1], x, x[-1:], x[-1:]])
    return np.array(
        [(padded[t + 3] - padded[t + 1] + 2 * (padded[t + 4] - padded[t])) / 10 for t in range(len(x))]
    )


def test_differences_stay_within_their_utterance() -> None:
    random = np.random.RandomState(3)
    parts = [random.normal(size=(n, 13)).astype(np.float32) for n in (5, 1, 2, 30)]
    together = features.with_differences(np.concatenate(parts), np.array([5, 1, 2, 30]))
    once = [slow_slopes(part) for part in parts]
    twice = [slow_slopes(part) for part in once]
    expected = np.concatenate([np.concatenate(parts), np.concatenate(once), np.concatenate(twice)], axis=1)
    assert together == pytest.approx(expected, abs=1e-5)
    ramp = np.arange(20, dtype=np.float32)[:, None] * 3
    slopes = features.with_differences(ramp, np.array([20]))
    assert slopes[4:-4, 1:] == pytest.approx(np.tile([3.0, 0.0], (12, 1)), abs=1e-6)


def test_a_signal_has_one_dimension() -> None:
    with pytest.raises(ValueError, match=r"signal \(of shape \(3, 2\)\) must have one dimension"):
        features.mfcc(np.zeros((3, 2)))
