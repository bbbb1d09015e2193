"""Dropout whose numbers are a function of (seed, index, call)."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.checkpoint.save_load import load_model
from wirebound.engine.fused import FusedEngine
from wirebound.engine.modules import ModuleEngine
from wirebound.nn.perceptron import perceptron
from wirebound.ops import philox


def test_what_is_kept_goes_by_half_words_of_its_stream() -> None:
    layer, x = wb.Dropout(0.3, seed=5, index=2), torch.ones(11, 6)
    layer(x)
    found = layer(x)  # the second call
    words = philox.words(5, philox.Stream.DROPOUT | 2 << 8, 1, 6 * 16 // 2, torch.device("cpu"))
    for sample in range(11):
        for feature in range(6):
            half = feature * 16 + sample
            drawn = int(words[half // 2]) >> 16 * (half % 2) & 0xFFFF
            assert found[sample, feature].item() == pytest.approx(0 if drawn < round(0.3 * 65536) else 1 / 0.7)


@pytest.mark.skipif(not ops.native_available(), reason="the native kernels were not built")
def test_every_backend_leaves_out_the_same() -> None:
    x = torch.rand(33, 50)
    found = {}
    for name in ("reference", "native"):
        with ops.use(name):
            found[name] = wb.Dropout(0.4, seed=1)(x)
    assert torch.equal(found["reference"], found["native"])


def test_the_share_is_p_and_evaluation_keeps_all() -> None:
    layer, x = wb.Dropout(0.1), torch.ones(1000, 100)
    assert abs((layer(x) == 0).float().mean() - 0.1) < 0.005
    assert not torch.equal(layer(x), layer(x))
    assert layer.eval()(x) is x
    assert int(layer.calls) == 3


def test_calls_travel_with_the_state() -> None:
    one, two = wb.Dropout(0.5), wb.Dropout(0.5)
    one(torch.ones(4, 8))
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(torch.ones(4, 8)), two(torch.ones(4, 8)))


@pytest.mark.parametrize("wrong", [{"p": 1.0}, {"p": -0.1}, {"index": -1}, {"seed": -1}])
def test_wrong_values_are_refused(wrong: dict[str, float]) -> None:
    (name, value), *_ = wrong.items()
    with pytest.raises(ValueError, match=rf"{name} \(={value}\) must be in"):
        wb.Dropout(**wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(not ops.native_available(), reason="the native kernels were not built")
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(("activation", "batch"), [("relu", 10), ("relu", 50), ("tanh", 33), ("sigmoid", 100)])
def test_fused_steps_are_those_of_modules(activation: str, batch: int, soft: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(200, 37, generator=generator)
    y = torch.softmax(torch.randn(200, 5, generator=generator), 1)
    y = y if soft else y.argmax(1)
    found = []
    for fused in (False, True):
        model = perceptron([37, 40, 30, 5], activation, bias=False, dropout=(0.2, 0.3), seed=3)
        model = wb.sparsify(model, connectivity=0.3, seed=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
        method = wb.DeepR(model, optimizer, l1=1e-3)
        engine = FusedEngine(model, method, x, y, soft=soft) if fused else ModuleEngine(model, method, x, y, F.cross_entropy)
        lrs = [0.3] * -(-200 // batch)
        windows = [*engine.epoch(torch.arange(200), lrs, batch, 3), *engine.epoch(torch.arange(200), lrs, batch, 3)]
        wiring = wb.wirings(model)[0]
        wiring.check()
        calls = [int(module.calls) for module in model.modules() if isinstance(module, wb.Dropout)]
        found.append((torch.tensor([window.loss for window in windows]), wiring.positions(), wiring.theta.detach(), calls))
    modules, native = found
    assert torch.equal(modules[1], native[1])
    assert modules[3] == native[3] == [2 * -(-200 // batch)] * 3
    torch.testing.assert_close(modules[0], native[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(modules[2], native[2], rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not ops.native_available(), reason="the native kernels were not built")
def test_what_the_fused_path_cannot_take_is_said() -> None:
    for last in (wb.Dropout(0.1), nn.Dropout(0.1)):
        model = wb.sparsify(nn.Sequential(nn.Linear(8, 4), last), connectivity=0.5)
        method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with pytest.raises(ValueError, match=r"cannot be fused: .*ropout"):
            FusedEngine(model, method, torch.rand(4, 8), torch.zeros(4, dtype=torch.int64))


def test_files_exports_and_dense_copies_know_it(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = wb.sparsify(perceptron([12, 9, 4], dropout=(0.2, 0.5), seed=7), connectivity=0.5)
    model(torch.rand(5, 12))
    wb.save(tmp_path / "net.safetensors", model=model)
    loaded = load_model(tmp_path / "net.safetensors")
    x = torch.rand(5, 12)
    assert [type(module) for module in loaded] == [type(module) for module in model]
    assert torch.equal(loaded.train()(x), model.train()(x))
    assert torch.allclose(wb.to_dense(model).eval()(x), model.eval()(x), atol=1e-6)


def test_a_graph_leaves_out_the_same() -> None:
    eager, traced = wb.Dropout(0.3, seed=2), wb.Dropout(0.3, seed=2)
    compiled = torch.compile(traced, fullgraph=True, backend="eager")
    x = torch.rand(7, 20)
    for _ in range(3):
        assert torch.equal(compiled(x), eager(x))
    assert int(traced.calls) == 3
