"""Which labels a sampled softmax looks at, and what each of them stands for.

All labels of the batch stand for themselves. Of the others some are drawn, and one drawn with probability q stands for
1/q: its logit gets − log q. The sum of exponentials over what was drawn is then that over all labels, on average.
"""

import math

import torch
from torch import Tensor

from wirebound.ops import backend_on
from wirebound.ops.philox import Stream, dormant_at, stream_of

_MOST_SEEDS, _MOST_SAMPLES = 1 << 63, 1 << 31


def check_draws(samples: int | None, frequencies: Tensor | None, seed: int) -> None:
    if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or not 1 <= samples < _MOST_SAMPLES):
        raise ValueError(f"samples (={samples}) must be a whole number >= 1, or None for all labels")
    if not 0 <= seed < _MOST_SEEDS:
        raise ValueError(f"seed (={seed}) must be in [0, 2^63)")
    if frequencies is None:
        return
    if samples is None:
        raise ValueError("frequencies say how labels are drawn: they need samples=")
    if frequencies.dim() != 1 or not bool((torch.isfinite(frequencies) & (frequencies > 0)).all()):
        raise ValueError("frequencies must be one finite number > 0 for each label: a label that is never drawn has no correction")


def draw_labels(
    own: Tensor, n_out: int, samples: int, frequencies: Tensor | None, seed: int, step: int
) -> tuple[Tensor, Tensor | None]:
    """Sorted labels, those of the batch (``own``, sorted and distinct) among them, and − log q of each; None: all are 0."""
    if frequencies is not None:
        return _by_frequency(own, n_out, samples, frequencies, seed, step)
    others = n_out - own.numel()
    if samples >= others:
        return torch.arange(n_out, device=own.device), None
    draw = backend_on(own.device).sample_sorted
    drawn = dormant_at(draw(others, samples, seed, stream_of(Stream.LABELS, 0), step, own.device), own)
    return _together(own, drawn, torch.full_like(drawn, math.log(others / samples), dtype=torch.float64))


def _by_frequency(own: Tensor, n_out: int, samples: int, frequencies: Tensor, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Drawn with replacement among all labels; what falls on labels of the batch is left out."""
    if frequencies.numel() != n_out:
        raise ValueError(f"frequencies (of {frequencies.numel()} labels) must be one for each output of the layer (={n_out})")
    if frequencies.device != own.device:
        raise ValueError(f"frequencies are on {frequencies.device}, the labels on {own.device}: move one of them with .to()")
    until = frequencies.to(torch.float64).cumsum(0)
    words = backend_on(own.device).words(seed, stream_of(Stream.LABELS, 0), step, 2 * samples, own.device).view(-1, 2)
    places = ((words[:, 1] << 21 | words[:, 0] >> 11).to(torch.float64) + 0.5) * (2.0**-53 * until[-1])
    drawn, times = torch.searchsorted(until, places, right=True).clamp_(max=n_out - 1).unique(return_counts=True)
    new = ~torch.isin(drawn, own)
    drawn, times = drawn[new], times[new]
    stands_for = times.to(torch.float64) * until[-1] / (samples * frequencies[drawn].to(torch.float64))
    return _together(own, drawn, stands_for.log())


def _together(own: Tensor, drawn: Tensor, correction: Tensor) -> tuple[Tensor, Tensor]:
    labels, order = torch.cat([own, drawn]).sort()
    return labels, torch.cat([correction.new_zeros(own.numel()), correction])[order]
