"""Blocks of networks for images against torch's own layers, on both implementations."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from wirebound import ops
from wirebound.nn.image_blocks import NormPool, Stem, local_response
from wirebound.ops.image_shapes import PoolNorm

SHAPES = [
    # batch, channels in and out, kernel, padding, height, width, what follows
    (5, 3, 64, 5, 2, 24, 24, PoolNorm()),
    (17, 3, 64, 5, 2, 8, 12, PoolNorm()),
    (3, 2, 7, 3, 1, 9, 11, PoolNorm(2, 2, 2, 0.1, 0.5, 2.0)),
    (9, 1, 33, 4, 0, 13, 8, PoolNorm(3, 1, 1, 0.05)),
    (2, 4, 5, 5, 2, 7, 6, PoolNorm(2, 3, 9, 0.05, 0.75, 0.5)),
    (1, 7, 3, 6, 5, 5, 5, PoolNorm(4, 2, 0, 0.05, 1.0)),
    (1, 1, 1, 1, 0, 1, 1, PoolNorm(1, 1, 0, 0.5)),
]


def response(x, shape):
    """torch's own, whose α is that of the mean over the window; it cannot have an even one, nor one beyond the channels."""
    squares = F.pad((x * x).transpose(1, -1), (shape.radius, shape.radius)).unfold(-1, 2 * shape.radius + 1, 1).sum(-1)
    return x / (shape.bias + shape.alpha * squares.transpose(1, -1)) ** shape.beta


def pool(x, shape):
    return F.max_pool2d(x, shape.window, shape.step, ceil_mode=True)


def agree(ours, theirs, inputs):
    """The same outputs and the same gradients."""
    tolerance = 1e-4 if ours.dtype is torch.float32 else 1e-12
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    upstream = torch.randn(theirs.shape, dtype=theirs.dtype, generator=torch.Generator().manual_seed(1))
    for a, b in zip(*(torch.autograd.grad(y, inputs, upstream) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_the_stem_is_torchs_layers(case, dtype):
    torch.manual_seed(0)
    batch, c_in, c_out, kernel, padding, height, width, after = case
    stem, x = Stem(c_in, c_out, kernel, padding, after).to(dtype), torch.randn(batch, c_in, height, width, dtype=dtype)
    y = F.conv2d(x, stem.weight.view(c_out, c_in, kernel, kernel), stem.bias, padding=padding)
    agree(stem(x), response(pool(F.relu(y), after), after), [stem.weight, stem.bias])


@pytest.mark.usefixtures("implementation")
def test_images_may_have_gradients_too():
    torch.manual_seed(0)
    stem, x = Stem(2, 4, 3, 1, PoolNorm()).double(), torch.randn(2, 2, 6, 6, dtype=torch.float64, requires_grad=True)
    y = F.conv2d(x, stem.weight.view(4, 2, 3, 3), stem.bias, padding=1)
    agree(stem(x), response(pool(F.relu(y), PoolNorm()), PoolNorm()), [x, stem.weight, stem.bias])


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_norm_and_pool_are_torchs_layers(case, dtype):
    torch.manual_seed(0)
    batch, _, channels, _, _, height, width, shape = case
    for x in (torch.randn(batch, channels, height, width, dtype=dtype), torch.randn(batch, height, width, channels, dtype=dtype).permute(0, 3, 1, 2)):
        x.requires_grad_()
        agree(NormPool(shape)(x), pool(response(F.relu(x), shape), shape), [x])


def test_local_response_is_torchs_with_its_gradient() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 12, 3, 5, dtype=torch.float64, requires_grad=True)
    agree(local_response(x, PoolNorm(alpha=0.01)), F.local_response_norm(x, 9, 0.09, 0.75, 1.0), [x])


@pytest.mark.usefixtures("implementation", "threads")
def test_threads_change_no_bit():
    torch.manual_seed(0)
    stem, norm, x = Stem(3, 20, 5, 2, PoolNorm()), NormPool(PoolNorm()), torch.randn(21, 3, 12, 12)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        stem.zero_grad()
        y = norm(stem(x))
        y.sum().backward()
        found.append([y.detach(), stem.weight.grad.clone(), stem.bias.grad.clone()])
    if ops.backend_of(x).has_image_blocks:  # torch promises no such thing
        assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("where", ["images", "weight"])
def test_a_nan_is_not_lost(where):
    torch.manual_seed(0)
    stem, norm, x = Stem(1, 20, 3, 1, PoolNorm()), NormPool(PoolNorm()), torch.randn(2, 1, 9, 9)
    with torch.no_grad():
        (x if where == "images" else stem.weight).view(-1)[7] = torch.nan
    assert stem(x)[0].isnan().any()
    x = torch.randn(2, 20, 9, 9)
    x[1, 3, 8, 8] = torch.nan
    y = norm(x)
    assert y[1].isnan().any()
    assert y[0].isfinite().all()


@pytest.mark.usefixtures("implementation")
def test_no_images_and_views_of_images():
    stem, norm = Stem(3, 8, 5, 2, PoolNorm()), NormPool(PoolNorm())
    assert norm(stem(torch.randn(0, 3, 24, 24))).shape == (0, 8, 6, 6)
    x = torch.randn(4, 24, 24, 3)
    assert torch.equal(stem(x.permute(0, 3, 1, 2)), stem(x.permute(0, 3, 1, 2).contiguous()))
    other = copy.deepcopy(stem).double()
    torch.testing.assert_close(other(x.permute(0, 3, 1, 2).double()).float(), stem(x.permute(0, 3, 1, 2)))


@pytest.mark.usefixtures("implementation")
def test_bad_images_are_refused():
    stem = Stem(3, 8, 5, 0, PoolNorm())
    with pytest.raises((ValueError, RuntimeError)):
        stem(torch.randn(2, 4, 24, 24))
    with pytest.raises((ValueError, RuntimeError)):
        stem(torch.randn(2, 3, 4, 4))
    if ops.native_available():
        with ops.use("native"), pytest.raises(ValueError, match=r"window \(=16\) must be in \[1, 15\]"):
            NormPool(PoolNorm(window=16))(torch.randn(1, 2, 20, 20))


@pytest.mark.usefixtures("implementation")
def test_flops_of_the_stem_are_counted():
    stem = Stem(3, 8, 5, 2, PoolNorm())
    with FlopCounterMode(display=False) as counter:
        stem(torch.randn(2, 3, 6, 4))
    assert counter.get_total_flops() >= 2 * 2 * 24 * 8 * 75  # plain torch also multiplies with a band


@pytest.mark.usefixtures("implementation")
def test_there_is_no_second_derivative():
    norm, x = NormPool(PoolNorm()), torch.randn(2, 4, 6, 6, requires_grad=True)
    (slope,) = torch.autograd.grad(norm(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        slope.sum().backward()
