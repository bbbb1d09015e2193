"""Small sizes of the other sections: answers are compared within, here only that they come out whole."""

import pytest
import torch

from wirebound import ops
from wirebound_lab.bench import layers, linear, scale, step, update
from wirebound_lab.bench.contenders import LinearProblem, LinearWorkload
from wirebound_lab.bench.contest import Settings, WrongAnswerError
from wirebound_lab.bench.step import Images

TINY = Settings(seconds=0.001, rounds=2)


def test_conv():
    measurement = layers.CONVOLUTIONS.measure(layers.ConvWorkload(6, 3, 5, 0.3, 4), TINY)
    assert measurement.workload == "3×3 6→6 on 5×5, 30 %, B 4"
    assert set(measurement.times) == {"dense", "dense module", "masked module", "module", "kernel"}


def test_conv_check_finds_a_difference(monkeypatch):
    backend = ops.backend_of(torch.zeros(1))
    monkeypatch.setattr(backend, "conv2d_forward", lambda x, *others: x)
    with pytest.raises(WrongAnswerError, match="y differs"):
        layers.CONVOLUTIONS.measure(layers.ConvWorkload(6, 3, 5, 0.3, 4), TINY)


@pytest.mark.slow
def test_memory_of_convolutions():
    network = layers.MeasuredNetwork("conv", width=16, layers=2, connectivity=0.1, size=4, batch=2)
    dense, sparse = layers.conv_memory(network, TINY)
    assert dense.numbers["bytes kept, MB"] > 3 * sparse.numbers["bytes kept, MB"] > 0
    for measurement in (dense, sparse):
        assert measurement.numbers["peak RSS, MB"] >= measurement.numbers["before the network, MB"] > 0
    with pytest.raises(OSError, match="connectivity"):
        layers.run_process(layers.MeasuredNetwork("conv", width=2, size=4, connectivity=2.0), True)


def test_update():
    measurement = update.measure_update(2000, TINY)
    assert measurement.numbers["ours, ns a connection"] > 0
    numbers = update.AdamNumbers(3000)
    assert numbers.update().tolist() == [0, 1000, 2000]


def test_update_check_finds_a_difference(monkeypatch):
    monkeypatch.setattr(update, "_LR", 1e-3)
    monkeypatch.setattr(
        update, "torch_adam", lambda count: (torch.nn.Parameter(torch.zeros(count)), lambda: None)
    )
    with pytest.raises(WrongAnswerError, match=r"torch\.optim\.Adam"):
        update.check_update(100)


def test_normals():
    measurement = update.measure_normals(1000, TINY)
    assert ("ours, normals" in measurement.times) == ops.native_available()


def test_rewire():
    measurement = update.measure_rewire(60, 500, TINY)
    assert measurement.workload == "K 500, 60×60, 14 %"
    assert measurement.numbers[update.SHARE_OF_PASS] > 0


def test_bare_rewiring_is_rewiring():
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    wiring = LinearProblem(LinearWorkload(50, 40, 0.2, 4)).layer.wiring
    one, other = update.Rewired(wiring), update.Rewired(wiring)
    run = other.bare()
    for _ in range(5):
        one.rewire()
        run()
    other.wiring.check()
    assert torch.equal(one.wiring.packed_rows, other.wiring.packed_rows)
    assert torch.equal(one.wiring.colptr, other.wiring.colptr)
    assert torch.equal(one.wiring.theta, other.wiring.theta)


def test_step():
    generator, count = torch.Generator().manual_seed(0), step.BATCH * step.FUSED_STEPS
    pixels = torch.randint(256, (count, 64), generator=generator, dtype=torch.uint8)
    images, sizes = Images(pixels, torch.randint(10, (count,), generator=generator)), (64, 20, 20, 10)
    trained = step.Trained(images, step.steady_state(images, sizes, epochs=1), sizes)
    before = trained.model.state_dict()["0.wiring.theta"].clone()
    trained.step()
    assert trained.method.steps == step.FUSED_STEPS + 1
    trained.go_back()
    assert trained.method.steps == step.FUSED_STEPS
    assert torch.equal(trained.model.state_dict()["0.wiring.theta"], before)
    trained.fused_steps(steps=4)()
    assert (trained.method.steps, trained.steps) == (step.FUSED_STEPS + 4, 5)
    measurement = step.measure_step(images, TINY, sizes, epochs=1)
    assert measurement.workload == "64-20-20-10, 1 %, batch 10"
    assert {step.DENSE, step.CSR, step.MODULES} <= set(measurement.times)
    assert (step.FUSED in measurement.times) == ops.native_available()
    assert measurement.numbers["replaced in a step, modules"] >= 0


def test_scale_in_a_process_of_its_own():
    measurement = scale.measure_scale(2000, 4000, Settings(seconds=0.001, rounds=2, quick=True), batch=4)
    numbers = measurement.numbers
    assert numbers["bytes a connection"] == 20
    assert numbers["peak RSS, GB"] >= numbers["peak RSS of imports, GB"] > 0
    assert set(measurement.times) == {"whole step", *(f"{part}, alone" for part in scale.PARTS)}


def test_scale_says_what_went_wrong():
    with pytest.raises(OSError, match="budget"):
        scale.run_process(side=10, budget=1000, batch=2, steps=1, threads=1)


def test_growth():
    measurement = scale.measure_growth(200, 40, 400, TINY, batch=4)
    assert measurement.numbers["possible connections ×"] == 100
    assert measurement.numbers["activations ×"] == 10


def test_limits():
    machine = linear.measure_machine(TINY, matrix=64, stream=4096)
    problem = LinearProblem(LinearWorkload(10, 20, 0.5, 4))
    assert linear.flops(problem) == 6 * 100 * 4
    assert linear.least_bytes(problem) == 4 * 4 * (30 + 40) + 20 * 100 + 16 * 11
    if ops.native_available():
        assert linear.measure_share(LinearWorkload(32, 32, 0.5, 8), machine, TINY).numbers["% of peak"] > 0
