"""Sparse LSTM and GRU against torch's own with the scattered weights, on both implementations."""

from __future__ import annotations

import itertools

import pytest
import torch
from recurrent_helpers import compare, make
from torch import nn

import wirebound as wb

pytestmark = pytest.mark.usefixtures("implementation")
KINDS = pytest.mark.parametrize("kind", ["lstm", "gru"])


def random_state(kind, *shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)
    pair = [torch.randn(shape, dtype=dtype, generator=generator) for _ in range(2)]
    return tuple(pair) if kind == "lstm" else pair[0]


@KINDS
@pytest.mark.parametrize(
    ("layers", "bidirectional", "batch_first", "with_lengths", "with_state", "bias"),
    [
        combination
        for number, combination in enumerate(itertools.product((1, 2), *[(False, True)] * 5))
        if number % 3 == 0 or combination[1:5] in ((True,) * 4, (False,) * 4, (True, False, True, True))
    ],
)
def test_equals_torch(kind, layers, bidirectional, batch_first, with_lengths, with_state, bias):
    layer = make(
        kind, 5, 7, layers, bias, batch_first, connectivity=0.4, bidirectional=bidirectional, seed=layers
    )
    steps, batch = 9, 6
    x = torch.randn(*((batch, steps) if batch_first else (steps, batch)), 5, dtype=torch.float64)
    lengths = torch.tensor([4, 9, 1, 7, 9, 2]) if with_lengths else None
    state = random_state(kind, layers * (1 + bidirectional), batch, 7) if with_state else None
    compare(layer, x, state, lengths)


@KINDS
@pytest.mark.parametrize("batch", [1, 2, 5, 8, 9, 16, 17, 31, 33, 70])
def test_every_width_of_panels(kind, batch):
    layer = make(kind, 6, 11, connectivity=0.3, bidirectional=True)
    generator = torch.Generator().manual_seed(batch)
    x = torch.randn(5, batch, 6, dtype=torch.float64, generator=generator)
    lengths = torch.randint(1, 6, (batch,), generator=generator)
    compare(layer, x, random_state(kind, 2, batch, 11), lengths)
    compare(layer, x)


@KINDS
@pytest.mark.parametrize("batch", [1, 3, 12, 32, 50])
def test_float32(kind, batch):
    layer = make(kind, 13, 40, 2, connectivity=0.2, bidirectional=True, dtype=torch.float32)
    x = torch.randn(12, batch, 13)
    lengths = torch.arange(batch) % 12 + 1
    compare(layer, x, random_state(kind, 4, batch, 40, dtype=torch.float32), lengths, tolerance=3e-4)
    compare(layer, x, tolerance=3e-4)


@KINDS
@pytest.mark.parametrize("budget", [1, 3, 4 * 7 * (5 + 7)])
def test_few_connections_and_all(kind, budget):
    budget = min(budget, (4 if kind == "lstm" else 3) * 7 * (5 + 7))
    layer = make(kind, 5, 7, budget=budget)
    compare(layer, torch.randn(4, 3, 5, dtype=torch.float64))


@KINDS
def test_one_step_one_sequence_no_batch(kind):
    layer = make(kind, 5, 7, connectivity=0.5, bidirectional=True)
    compare(layer, torch.randn(1, 4, 5, dtype=torch.float64))
    compare(layer, torch.randn(6, 1, 5, dtype=torch.float64))
    compare(layer, torch.randn(6, 5, dtype=torch.float64), random_state(kind, 2, 7))
    layer.batch_first = True
    compare(layer, torch.randn(6, 5, dtype=torch.float64))


@KINDS
def test_strange_strides(kind):
    layer = make(kind, 4, 6, connectivity=0.5)
    x = torch.randn(5, 4, 3, dtype=torch.float64)
    for view in (x.permute(0, 2, 1), x.permute(2, 0, 1), torch.randn(3, 2, 8, dtype=torch.float64)[..., ::2]):
        compare(layer, view)
    layer(x.transpose(1, 2))[0].sum().backward()  # an expanded gradient


@KINDS
def test_long_saturated_sequences(kind):
    """Large weights drive the gates into saturation, where e^x over- and underflows."""
    layer = make(kind, 3, 8, connectivity=0.9)
    with torch.no_grad():
        layer.wiring.theta.mul_(400)
    x = 50 * torch.randn(30, 3, 3, dtype=torch.float64)
    compare(layer, x, tolerance=1e-9)
    single = make(kind, 3, 8, connectivity=0.9, dtype=torch.float32)
    with torch.no_grad():
        single.wiring.theta.mul_(400)
    y = single(x.float())[0]
    assert torch.isfinite(y).all()


@KINDS
def test_functions_keep_float32_precision(kind):
    """Over the whole range of the gates, close to what torch gives."""
    gates = 4 if kind == "lstm" else 3
    layer = make(kind, 1, 1, dtype=torch.float32, allocation=[gates, 0])
    x = torch.linspace(-60, 60, 4001).view(1, -1, 1)
    exact = layer.double().dense_twin()
    expected = exact(x.double())[0]
    torch.testing.assert_close(layer.float()(x)[0].double(), expected, rtol=2e-6, atol=1e-7)


@KINDS
def test_gradcheck(kind):
    layer = make(kind, 3, 4, 2, connectivity=0.6, bidirectional=True)
    x = torch.randn(3, 3, 3, dtype=torch.float64, requires_grad=True)
    state = random_state(kind, 4, 3, 4)
    given = [s.requires_grad_() for s in (state if kind == "lstm" else (state,))]
    biases = [p for name, p in layer.named_parameters() if name.startswith("bias")]
    lengths = torch.tensor([3, 1, 2])

    def run(x, *rest):
        y, last = layer(x, tuple(rest[:2]) if kind == "lstm" else rest[0], lengths)
        return (y, *(last if kind == "lstm" else (last,)))

    assert torch.autograd.gradcheck(run, (x, *given, layer.wiring.theta, *biases))


@KINDS
def test_mask_is_lengths(kind):
    layer = make(kind, 5, 7, connectivity=0.4, bidirectional=True, batch_first=True)
    x = torch.randn(3, 6, 5, dtype=torch.float64)
    lengths = torch.tensor([6, 2, 4])
    mask = torch.arange(6) < lengths[:, None]
    for ours, theirs in zip(layer(x, mask=mask), layer(x, lengths=lengths), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@KINDS
def test_padding_does_not_matter(kind):
    """Not even NaN; and a sequence of no steps keeps its initial state."""
    layer = make(kind, 5, 7, connectivity=0.4, bidirectional=True)
    x = torch.randn(6, 3, 5, dtype=torch.float64)
    lengths = torch.tensor([6, 0, 3])
    state = random_state(kind, 2, 3, 7)
    spoilt = x.clone()
    spoilt[3:, 2] = float("nan")
    spoilt[:, 1] = float("inf")
    spoilt.requires_grad_()
    y, last = layer(spoilt, state, lengths)
    torch.testing.assert_close(y, layer(x, state, lengths)[0], rtol=0, atol=0)
    assert y[:, 1].eq(0).all()
    for end, start in zip(*((last, state) if kind == "lstm" else ((last,), (state,))), strict=True):
        assert torch.equal(end[:, 1], start[:, 1])
    y.sum().backward()
    assert torch.isfinite(layer.wiring.theta.grad).all()
    assert spoilt.grad[:, 1].eq(0).all()
    assert torch.isfinite(spoilt.grad).all()


@KINDS
def test_without_gradient_the_same(kind):
    layer = make(kind, 5, 7, 2, connectivity=0.4, bidirectional=True)
    x = torch.randn(6, 3, 5, dtype=torch.float64)
    expected = layer(x)[0].detach()
    with torch.no_grad():
        assert torch.equal(layer(x)[0], expected)
    layer.requires_grad_(False)
    mine = x.clone().requires_grad_()
    layer(mine)[0].sum().backward()
    assert mine.grad.abs().sum() > 0


@KINDS
def test_only_some_outputs_are_used(kind):
    layer = make(kind, 5, 7, connectivity=0.4)
    twin = layer.dense_twin()
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    for network in (layer, twin):
        last = network(x)[1]
        (last[1] if kind == "lstm" else last).square().sum().backward()
    ours, theirs = layer.bias_ih_l0.grad, twin.bias_ih_l0.grad
    torch.testing.assert_close(ours, theirs)


@KINDS
def test_accumulation_and_clipping(kind):
    layer = make(kind, 5, 7, connectivity=0.4)
    x = torch.randn(4, 6, 5, dtype=torch.float64)
    layer(x)[0].square().sum().backward()
    whole = layer.wiring.theta.grad.clone()
    layer.zero_grad()
    for part in (x[:, :2], x[:, 2:]):
        layer(part)[0].square().sum().backward()
    torch.testing.assert_close(layer.wiring.theta.grad, whole)
    nn.utils.clip_grad_norm_(layer.parameters(), 1e-3)
    total = torch.stack([p.grad.norm() for p in layer.parameters()]).norm()
    assert total.item() == pytest.approx(1e-3, rel=1e-3)


@KINDS
def test_watched_gradients_are_the_dense_ones(kind):
    layer = make(kind, 4, 6, 2, connectivity=0.3, bidirectional=True)
    twin = layer.dense_twin()
    layer.wiring.watch = {}
    x = torch.randn(5, 3, 4, dtype=torch.float64)
    lengths = torch.tensor([5, 2, 3])
    state = random_state(kind, 4, 3, 6)
    layer(x, state, lengths)[0].square().sum().backward()
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    twin(packed, state)[0].data.square().sum().backward()
    for name, matrix in zip(layer.matrix_names, layer.matrices(), strict=True):
        (source,) = layer.wiring.watch[matrix.layer_id]
        width = layer.wiring.layers[matrix.layer_id].n_in
        got = torch.cat([source.block(0, 2), source.block(2, width)], 1)
        torch.testing.assert_close(got, twin.get_parameter(name).grad, msg=name)


@KINDS
def test_same_bits_for_every_number_of_threads(kind, threads):
    layer = make(kind, 20, 50, connectivity=0.2, bidirectional=True, dtype=torch.float32)
    x = torch.randn(20, 150, 20)
    lengths = torch.randint(1, 21, (150,))
    outcomes = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        layer.zero_grad()
        mine = x.clone().requires_grad_()
        y = layer(mine, lengths=lengths)[0]
        y.square().sum().backward()
        outcomes.append((y.detach(), mine.grad, *(p.grad.clone() for p in layer.parameters())))
    for other in outcomes[1:]:
        for a, b in zip(outcomes[0], other, strict=True):
            assert torch.equal(a, b)


@KINDS
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_exactly_k_at_every_step(kind, optimizer):
    torch.manual_seed(0)
    layer = make(kind, 8, 16, 2, connectivity=0.1, bidirectional=True, dtype=torch.float32)
    head = nn.Linear(32, 2)
    model = nn.ModuleList([layer, head])
    (wiring,) = wb.wirings(model)
    method = wb.DeepR(model, optimizer(model.parameters(), lr=0.05), l1=1e-3, temperature=1e-6)
    x = torch.randn(6, 20, 8)
    target = (x.sum((0, 2)) > 0).long()
    budget, rewired, losses = wiring.budget, 0, []
    for _ in range(40):
        loss = nn.functional.cross_entropy(head(layer(x)[0][-1]), target)
        loss.backward()
        info = method.step()
        method.zero_grad()
        wiring.check()
        assert info.active == info.budget == budget
        rewired += info.rewired
        losses.append(loss.item())
    assert rewired > 0
    assert losses[-1] < losses[0]
    compare(layer, x, tolerance=1e-3)
