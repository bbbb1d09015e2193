"""Random numbers: the published answers, and the statistics that the methods rely on."""

import math

import pytest
import torch

from wirebound import ops
from wirebound.ops import philox

CPU = torch.device("cpu")


def test_known_answers():
    """The vectors that the authors of Philox publish with Random123."""
    zero = torch.zeros(1, dtype=torch.int64)
    ones = zero + 0xFFFFFFFF
    assert [int(w) for w in philox.philox(zero, zero, zero, zero, 0)] == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]
    assert [int(w) for w in philox.philox(ones, ones, ones, ones, (1 << 64) - 1)] == [
        0x408F276D,
        0x41C83B0E,
        0xA20BC7C6,
        0x6D5451FD,
    ]


def test_normals_are_normal():
    n = philox.normals(1, 2, 3, 400_000, CPU).double()
    assert abs(n.mean()) < 4 / math.sqrt(len(n))
    assert abs(n.var() - 1) < 4 * math.sqrt(2 / len(n))
    assert abs((n**4).mean() - 3) < 4 * math.sqrt(96 / len(n))
    # Kolmogorov-Smirnov distance to the normal law, at the 0.1 % level.
    expected = 0.5 * (1 + torch.erf(n.sort().values / math.sqrt(2)))
    distance = (expected - torch.arange(len(n)) / len(n)).abs().max()
    assert distance < 1.95 / math.sqrt(len(n))


@pytest.mark.parametrize("first", [0, 1, 31, 32, 1000])
def test_a_normal_depends_on_its_index_alone(first):
    whole = philox.normals(5, 2, 7, 2000, CPU)
    assert torch.equal(philox.normals(5, 2, 7, 500, CPU, first=first), whole[first : first + 500])


def test_streams_steps_and_seeds_differ():
    base = philox.words(1, 2, 3, 64, CPU)
    for other in (philox.words(2, 2, 3, 64, CPU), philox.words(1, 3, 3, 64, CPU), philox.words(1, 2, 4, 64, CPU)):
        assert not torch.equal(base, other)


@pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (7, 3), (7, 4), (50, 25), (50, 50), (1000, 999), (10**12, 500)])
def test_sample_sorted_is_a_sorted_subset(n, k):
    sample = philox.sample_sorted(n, k, 3, 0, 0, CPU)
    assert sample.numel() == k
    assert (sample.diff() > 0).all()
    assert k == 0 or (sample.min() >= 0 and sample.max() < n)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_every_subset_is_equally_likely(k):
    n, draws = 5, 800
    counts: dict[tuple[int, ...], int] = {}
    for step in range(draws):
        subset = tuple(philox.sample_sorted(n, k, 11, 0, step, CPU).tolist())
        counts[subset] = counts.get(subset, 0) + 1
    cells = math.comb(n, k)
    assert len(counts) == cells
    chi2 = sum((c - draws / cells) ** 2 / (draws / cells) for c in counts.values())
    # mean cells-1, variance 2(cells-1): five standard deviations
    assert chi2 < cells - 1 + 5 * math.sqrt(2 * (cells - 1)) + 5


def test_rank_formula_lists_the_dormant_ones():
    active = torch.tensor([0, 2, 3, 7, 9])
    assert philox.dormant_at(torch.arange(5), active).tolist() == [1, 4, 5, 6, 8]


def test_signs_are_constant_and_fair():
    positions = torch.arange(100_000) * 7919
    signs = philox.negative_signs(positions, 3, 0)
    assert torch.equal(signs[500:600], philox.negative_signs(positions[500:600], 3, 0))
    assert abs(signs.double().mean() - 0.5) < 4 * 0.5 / math.sqrt(len(signs))
    assert not torch.equal(signs, philox.negative_signs(positions, 4, 0))


def test_the_kernels_draw_the_same_numbers(implementation):
    positions = torch.tensor([0, 1, 77, 1 << 33, (1 << 61) + 5])
    assert torch.equal(ops.backend_on(CPU).negative_signs(positions, 9, 3), philox.negative_signs(positions, 9, 3))
    assert torch.allclose(ops.backend_on(CPU).normals(9, 2, 4, 1001, CPU), philox.normals(9, 2, 4, 1001, CPU), rtol=1e-5, atol=1e-6)
    for n, k in [(1, 1), (10, 3), (10, 8), (1000, 400), (10**12, 3000)]:
        assert torch.equal(ops.backend_on(CPU).sample_sorted(n, k, 9, 1, 5, CPU), philox.sample_sorted(n, k, 9, 1, 5, CPU))
