"""Every contender computes the same layer, and one that does not is found out."""

import dataclasses

import pytest
import torch

import wirebound as wb
from wirebound import ops
from wirebound_lab.bench import contenders as ways
from wirebound_lab.bench import csr, linear
from wirebound_lab.bench.contenders import LinearProblem, LinearWorkload
from wirebound_lab.bench.contest import Settings, WrongAnswerError, require_equal

TINY = Settings(seconds=0.001, rounds=2, kind="avx2")
WORKLOADS = [LinearWorkload(30, 20, 0.1, 8), LinearWorkload(17, 33, 0.5, 5), LinearWorkload(40, 40, 1.0, 32)]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.label)
def test_answers_agree(workload):
    contenders, formulation = linear.line_up(LinearProblem(workload))
    expected = contenders[0].answer()
    for contender in contenders[1:]:
        require_equal(contender, expected)
    names = [contender.name for contender in contenders]
    assert names[:2] == ["dense", "dense module"]
    assert {"torch CSR", "CSR transposed", "masked module", "reference", "module"} <= set(names)
    assert ("kernel" in names) == ops.native_available()
    assert formulation in ("views", "copies", "right")


@pytest.mark.parametrize("formulation", ["views", "copies", "right", "transposed"])
def test_every_csr_formulation_is_right(formulation):
    problem = LinearProblem(WORKLOADS[0])
    contender = csr.ways(problem)[formulation]
    require_equal(contender, ways.dense_kernel(problem).answer())


@pytest.mark.parametrize("part", ["y", "dx", "dw"])
def test_a_wrong_answer_is_found(part):
    problem = LinearProblem(WORKLOADS[0])
    right = ways.dense_kernel(problem)
    answer = right.answer()
    wrong = {**answer, part: answer[part] * 1.01}
    with pytest.raises(WrongAnswerError, match=f"{part} differs"):
        require_equal(dataclasses.replace(right, answer=lambda: wrong), answer)


def test_a_layer_is_measured():
    measurement = linear.LAYERS.measure(WORKLOADS[0], TINY)
    assert measurement.workload == "30→20, 10 %, B 8"
    assert all(timing.best > 0 for timing in measurement.times.values())
    wanted = linear.LAYERS.rows[0][1]
    goals = linear.LAYERS.goals(WORKLOADS[0], wanted, measurement, TINY)
    assert goals[0].subject == "Linear 30→20, 10 %, B 8: dense ÷ ours, kernel"
    assert [goal.wanted for goal in goals] == [25, 6.5]
    for kind, values in {"avx512": [16, 7], "avx2-on-avx512": [25, 6.5], "neon": []}.items():
        settings = dataclasses.replace(TINY, kind=kind)
        assert [goal.wanted for goal in linear.LAYERS.goals(WORKLOADS[0], wanted, measurement, settings)] == values


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_of_csr_computes_what_the_sparse_one_does(bias):
    model = torch.nn.Sequential(wb.SparseLinear(12, 9, bias, connectivity=0.3, seed=0))
    by_csr, twin = csr.with_csr(model), wb.to_dense(model)
    x = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(0))
    inputs = {network: x.clone().requires_grad_() for network in (by_csr, twin)}

    def loss(network):
        return network(inputs[network]).square().sum()

    csr.require_csr_twin(by_csr, twin, loss, lambda: [twin[0].weight.grad])
    assert torch.allclose(inputs[by_csr].grad, inputs[twin].grad, rtol=1e-4, atol=1e-5)
    with pytest.raises(WrongAnswerError, match="gradient differs"):
        csr.require_csr_twin(by_csr, twin, loss, lambda: [1.01 * twin[0].weight.grad])


def test_threads_give_the_same_bits():
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    before = torch.get_num_threads()
    contest = dataclasses.replace(linear.THREADS, rows=[(LinearWorkload(64, 64, 0.3, 32), {})])
    table, goals = contest.run(TINY, 2)
    assert set(table.measurements[0].times) == {"1 thread", "2 threads"}
    assert not goals
    assert torch.get_num_threads() == before
