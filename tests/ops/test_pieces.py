"""Pieces of images as a network is fed with them, on both implementations."""

from __future__ import annotations

import pytest
import torch

from wirebound import ops
from wirebound.ops.reference.images import standardise

CPU = torch.device("cpu")


def _task(count=40, channels=3):
    generator = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (9, channels, 14, 12), generator=generator, dtype=torch.uint8)
    chosen = torch.randint(9, (count,), generator=generator)
    top, left = torch.randint(5, (count,), generator=generator), torch.randint(3, (count,), generator=generator)
    mirrored, contrast = torch.rand(count, generator=generator) < 0.5, torch.rand(count, generator=generator) * 2
    return images, chosen, top, left, mirrored, contrast


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("changed", [True, False])
def test_each_piece_is_its_own(channels, changed):
    images, chosen, top, left, mirrored, contrast = _task(channels=channels)
    found = ops.backend_on(CPU).cut_pieces(images, chosen, top, left, mirrored, contrast if changed else None, 10)
    assert found.shape == (40, channels, 10, 10)
    for i in range(40):
        y, x = int(top[i]), int(left[i])
        piece = images[chosen[i], :, y : y + 10, x : x + 10].double() / 255
        piece = piece.flip(2) if mirrored[i] else piece
        if changed:
            mean = piece.mean((1, 2), keepdim=True)
            piece = (piece - mean) * contrast[i] + mean
        torch.testing.assert_close(found[i].double(), standardise(piece[None])[0], rtol=1e-5, atol=2e-6)


@pytest.mark.usefixtures("implementation")
def test_one_colour_and_none():
    images, zeros = torch.full((1, 3, 8, 8), 77, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64)
    arguments = (zeros, zeros, zeros, zeros.bool(), None, 8)
    assert ops.backend_on(CPU).cut_pieces(images, *arguments).abs().max().item() < 1e-4
    none = zeros[:0]
    assert ops.backend_on(CPU).cut_pieces(images, none, none, none, none.bool(), None, 8).shape == (0, 3, 8, 8)


@pytest.mark.usefixtures("threads")
def test_kernels_refuse_what_is_outside_and_count_no_threads():
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    images, chosen, top, left, mirrored, contrast = _task()
    with ops.use("native"):
        cut = ops.backend_on(CPU).cut_pieces
        for name, place in (("chosen", 0), ("top", 1), ("left", 2)):
            for bad in (-1, 9):
                numbers = [chosen, top, left]
                numbers[place] = numbers[place].clone()
                numbers[place][5] = bad
                with pytest.raises(ValueError, match=name):
                    cut(images, *numbers, mirrored, contrast, 10)
        with pytest.raises(ValueError, match="mirrored and contrast"):
            cut(images, chosen, top, left, mirrored[:5], contrast, 10)
        torch.set_num_threads(1)
        one = cut(images, chosen, top, left, mirrored, contrast, 10)
        torch.set_num_threads(3)
        assert torch.equal(one, cut(images, chosen, top, left, mirrored, contrast, 10))
