"""Cross-entropy over many labels: against the softmax of the dense logits, with its gradients; and what is drawn."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound.nn.label_draws import draw_labels

LABELS = 200


def _layer(dtype=torch.float64, bias=True, **options):
    layer = wb.SparseLinear(12, LABELS, bias=bias, budget=500, seed=3, **options).to(dtype)
    if bias:
        nn.init.normal_(layer.bias, generator=torch.Generator().manual_seed(1))
    return layer


def _batch(dtype=torch.float64, examples=7):
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(examples, 12, generator=draw, dtype=dtype).requires_grad_()
    return hidden, torch.randint(LABELS, (examples,), generator=draw)


def _gradients(layer, hidden, loss):
    layer.zero_grad()
    hidden.grad = None
    loss.backward()
    return [p.grad.clone() for p in (hidden, *layer.parameters())]


@pytest.mark.parametrize(("dtype", "chunk"), [(torch.float64, 1), (torch.float64, 64), (torch.float32, None), (torch.float64, 999)])
@pytest.mark.parametrize("bias", [True, False])
def test_all_labels_are_the_dense_softmax(implementation, dtype, chunk, bias):
    layer, (hidden, labels) = _layer(dtype, bias), _batch(dtype)
    found = wb.label_cross_entropy(hidden, layer, labels, chunk=chunk)
    wanted = F.cross_entropy(layer(hidden), labels)
    torch.testing.assert_close(found, wanted)
    for mine, right in zip(_gradients(layer, hidden, found), _gradients(layer, hidden, wanted), strict=True):
        torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("samples", [None, LABELS])
def test_reductions_shapes_and_labels_that_do_not_count(reduction, samples):
    layer, (hidden, labels) = _layer(), _batch(examples=6)
    labels[2] = -100
    wanted = F.cross_entropy(layer(hidden), labels, reduction=reduction)
    shape = (2, 3) if reduction == "none" else ()
    given = (hidden.view(2, 3, 12), layer, labels.view(2, 3))
    found = wb.label_cross_entropy(*given, samples=samples, reduction=reduction)
    assert found.shape == shape
    torch.testing.assert_close(found, wanted.view(shape))
    weights = torch.rand(shape, dtype=torch.float64)
    pairs = (_gradients(layer, hidden, (loss * weights.view(loss.shape)).sum()) for loss in (found, wanted))
    for mine, right in zip(*pairs, strict=True):
        torch.testing.assert_close(mine, right)


def test_drawn_labels_are_a_softmax_with_the_correction(implementation):
    layer, (hidden, labels) = _layer(), _batch()
    found = wb.label_cross_entropy(hidden, layer, labels, samples=20, seed=5, step=9)
    chosen, correction = draw_labels(labels.unique(), LABELS, 20, None, 5, 9)
    assert chosen.numel() == 20 + labels.unique().numel()
    assert set(labels.tolist()) <= set(chosen.tolist())
    others = LABELS - labels.unique().numel()
    assert set(correction.tolist()) == {0.0, math.log(others / 20)}
    logits = layer(hidden)[:, chosen] + correction
    wanted = F.cross_entropy(logits, torch.searchsorted(chosen, labels))
    torch.testing.assert_close(found, wanted)
    mine, right = _gradients(layer, hidden, found), _gradients(layer, hidden, wanted)
    for one, other in zip(mine, right, strict=True):
        torch.testing.assert_close(one, other)
    rows, of_theta = layer.wiring.packed_rows & 0x7FFFFFFF, mine[2]  # after those of hidden and bias
    assert bool((of_theta[~torch.isin(rows, chosen)] == 0).all())


@pytest.mark.parametrize("by_frequency", [False, True])
def test_the_sum_over_drawn_labels_is_that_over_all_on_average(by_frequency):
    exponentials = torch.rand(LABELS, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 0.1
    own = torch.tensor([3, 50, 199])
    frequencies = torch.arange(1.0, LABELS + 1).flip(0) if by_frequency else None
    sums = []
    for step in range(400):
        chosen, correction = draw_labels(own, LABELS, 30, frequencies, 0, step)
        sums.append(float((exponentials[chosen] * correction.exp()).sum()))
    sums = torch.tensor(sums, dtype=torch.float64)
    assert abs(sums.mean() - exponentials.sum()) < 4 * sums.std() / math.sqrt(len(sums))


def test_every_label_is_drawn_equally_often():
    own, counts = torch.tensor([0, 7]), torch.zeros(20)
    for step in range(1000):
        counts[draw_labels(own, 20, 6, None, 1, step)[0]] += 1
    assert bool((counts[own] == 1000).all())
    others = counts[torch.tensor([i for i in range(20) if i not in (0, 7)])]
    assert bool(((others - 1000 / 3).abs() < 5 * math.sqrt(1000 * 2 / 9)).all())


def test_one_layer_of_a_shared_wiring():
    plan = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, LABELS), nn.Identity()).double()
    model = wb.sparsify(plan, budget=400, seed=1)
    x, labels = torch.randn(7, 6, dtype=torch.float64), _batch()[1]
    theta = wb.wirings(model)[0].theta
    found = []
    for loss in (
        wb.label_cross_entropy(torch.relu(model[0](x)), model[2], labels, chunk=50),
        wb.label_cross_entropy(torch.relu(model[0](x)), model[2], labels, samples=LABELS),
        F.cross_entropy(model(x), labels),
    ):
        model.zero_grad()
        loss.backward()
        found.append((loss.detach(), theta.grad.clone()))
    for loss, gradient in found[:2]:
        torch.testing.assert_close(loss, found[2][0])
        torch.testing.assert_close(gradient, found[2][1])


def test_the_module_draws_in_training_and_takes_all_in_evaluation():
    layer, (hidden, labels) = _layer(), _batch()
    criterion = wb.LabelCrossEntropy(samples=10, seed=4)
    first, second = (criterion(hidden, layer, labels) for _ in range(2))
    assert int(criterion.calls) == 2
    again = wb.LabelCrossEntropy(samples=10, seed=4)
    again.load_state_dict({"calls": torch.tensor(1)})
    assert again(hidden, layer, labels) == second != first
    torch.testing.assert_close(criterion.eval()(hidden, layer, labels), F.cross_entropy(layer(hidden), labels))
    assert int(criterion.calls) == 2


@pytest.mark.parametrize("births", ["uniform", "gradient"])
@pytest.mark.parametrize("samples", [None, 20])
def test_budget_is_kept_and_the_loss_falls(births, samples):
    layer, criterion = _layer(torch.float32), wb.LabelCrossEntropy(samples=samples, chunk=64)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    rewiring = wb.DeepR(layer, optimizer, l1=1e-3, births=births)
    hidden, labels = _batch(torch.float32, 32)
    hidden = hidden.detach()
    before = criterion.eval()(hidden, layer, labels).item()
    criterion.train()
    rewired = 0
    for _ in range(30):
        criterion(hidden, layer, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        layer.wiring.check()
        rewired += rewiring.info.rewired
        assert rewiring.info.active == 500
    assert rewired
    assert criterion.eval()(hidden, layer, labels).item() < 0.7 * before


def test_growth_by_the_gradient_sees_the_dense_one():
    layer, (hidden, labels) = _layer(), _batch()
    found = {}
    for name, loss in {
        "dense": lambda: F.cross_entropy(layer(hidden), labels),
        "parts": lambda: wb.label_cross_entropy(hidden, layer, labels, chunk=64),
        "drawn": lambda: wb.label_cross_entropy(hidden, layer, labels, samples=LABELS - 20),
    }.items():
        layer.wiring.watch = {}
        loss().backward()
        sources = layer.wiring.watch[0]
        rows, columns = torch.tensor([0, 5, 150, 7, 199]), torch.tensor([0, 0, 0, 3, 11])
        at, block = sum(s.at(rows, columns) for s in sources), sum(s.block(0, 12) for s in sources)
        torch.testing.assert_close(at, block[rows, columns])
        found[name] = block
    torch.testing.assert_close(found["parts"], found["dense"])
    assert int((found["drawn"] == 0).all(1).sum()) >= 20 - 7


@pytest.mark.parametrize("samples", [None, 150])
def test_theta_below_zero_counts_as_dormant(samples):
    layer, (hidden, labels) = _layer(), _batch()
    with torch.no_grad():
        layer.wiring.theta[::3] *= -1
    with pytest.warns(RuntimeWarning, match="θ < 0"):
        found = wb.label_cross_entropy(hidden, layer, labels, samples=samples)
    assert bool((_gradients(layer, hidden, found)[2][::3] == 0).any())
    assert torch.equal(wb.top_labels(hidden, layer, 2).indices, layer(hidden).topk(2).indices)
    if samples is None:
        torch.testing.assert_close(found, F.cross_entropy(layer(hidden), labels))


def test_autocast():
    layer, (hidden, labels) = _layer(torch.float32), _batch(torch.float32)
    wanted = F.cross_entropy(layer(hidden), labels)
    with torch.autocast("cpu"):
        found = wb.label_cross_entropy(hidden.to(torch.bfloat16), layer, labels, chunk=64)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.slow  # the compiler takes seconds to be imported
def test_compile_runs_it_outside_of_the_graph():
    layer, (hidden, labels) = _layer(torch.float32), _batch(torch.float32)
    wanted = F.cross_entropy(layer(hidden), labels)
    compiled = torch.compile(lambda h, y: wb.label_cross_entropy(2 * h, layer, y), backend="eager")
    torch.testing.assert_close(compiled(hidden / 2, labels), wanted)


def test_function_transforms_are_refused():
    layer, (hidden, labels) = _layer(), _batch()
    with pytest.raises(RuntimeError, match="cannot be traced"):
        torch.func.grad(lambda h: wb.label_cross_entropy(h, layer, labels))(hidden)


@pytest.mark.parametrize("k", [1, 5, LABELS])
@pytest.mark.parametrize("chunk", [None, 3, 64])
def test_top_labels(implementation, k, chunk):
    layer, (hidden, _) = _layer(), _batch()
    found, wanted = wb.top_labels(hidden, layer, k, chunk=chunk), layer(hidden).topk(k)
    torch.testing.assert_close(found.values, wanted.values.detach())
    assert torch.equal(found.indices, wanted.indices)
    assert wb.top_labels(hidden[:6].view(2, 3, 12), layer, k).indices.shape == (2, 3, k)
    assert wb.top_labels(hidden[:0], layer, k).values.shape == (0, k)


def test_many_examples_of_top_labels():
    layer, (hidden, _) = _layer(), _batch(examples=600)
    assert torch.equal(wb.top_labels(hidden, layer, 3).indices, layer(hidden).topk(3).indices)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 0}, r"samples \(=0\)"),
        ({"chunk": 0}, r"chunk \(=0\)"),
        ({"seed": -1}, r"seed \(=-1\)"),
        ({"reduction": "max"}, r"reduction \(='max'\)"),
        ({"labels": torch.tensor([LABELS] * 7)}, r"a label \(=200\)"),
        ({"labels": torch.zeros(7)}, "whole numbers"),
        ({"labels": torch.zeros(6, dtype=torch.int64)}, r"labels \(=\(6,\)\)"),
        ({"hidden": torch.zeros(7, 11, dtype=torch.float64)}, r"hidden \(=11\)"),
        ({"hidden": torch.zeros(7, 12)}, "dtype of hidden"),
        ({"frequencies": torch.ones(LABELS)}, "need samples"),
        ({"samples": 5, "frequencies": torch.zeros(LABELS)}, "number > 0"),
        ({"samples": 5, "frequencies": torch.ones(3)}, "of 3 labels"),
        ({"layer": nn.Linear(12, LABELS)}, "SparseLinear"),
    ],
)
def test_what_is_refused(change, message):
    hidden, labels = _batch()
    given = {"hidden": hidden, "layer": _layer(), "labels": labels, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        wb.label_cross_entropy(**given)


def test_what_top_labels_refuses():
    with pytest.raises(ValueError, match=r"k \(=201\)"):
        wb.top_labels(_batch()[0], _layer(), 201)
    with pytest.raises(TypeError, match="SparseLinear"):
        wb.top_labels(_batch()[0], nn.Linear(12, 3), 2)


def test_no_second_derivative():
    layer, (hidden, labels) = _layer(), _batch()
    for samples in (None, 20):
        loss = wb.label_cross_entropy(hidden, layer, labels, samples=samples)
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(loss, hidden, create_graph=True)


def test_lazy_steps_leave_connections_of_labels_alone_that_were_not_drawn():
    layer, (hidden, labels) = _layer(torch.float32), _batch(torch.float32)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    rewiring = wb.DeepR(layer, optimizer, l1=0.5, lazy="on")
    for step in range(3):
        known = dict(zip(layer.wiring.positions().tolist(), layer.wiring.theta.tolist(), strict=True))
        chosen = set(draw_labels(labels.unique(), LABELS, 20, None, 0, step)[0].tolist())
        optimizer.zero_grad()
        wb.label_cross_entropy(hidden, layer, labels, samples=20, step=step).backward()
        optimizer.step()
        layer.wiring.check()
        after = dict(zip(layer.wiring.positions().tolist(), layer.wiring.theta.tolist(), strict=True))
        still = {position: theta for position, theta in known.items() if position % LABELS not in chosen}
        assert len(still) > 300
        assert all(after.get(position) == theta for position, theta in still.items())
        assert rewiring.info.rewired
