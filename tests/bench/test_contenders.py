"""Every contender computes the same layer, and one that does not is found out."""

import dataclasses

import pytest
import torch

from wirebound import ops
from wirebound_lab.bench import contenders as ways
from wirebound_lab.bench import linear
from wirebound_lab.bench.contenders import LinearProblem, LinearWorkload
from wirebound_lab.bench.contest import Measurement, Settings, WrongAnswerError, require_equal

TINY = Settings(seconds=0.001, rounds=2)
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
    contender = ways.csr_ways(problem)[formulation]
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
    goals = linear.LAYERS.goals(WORKLOADS[0], linear.LAYERS.rows[0][1], measurement)
    assert goals[0].subject == "Linear 30→20, 10 %, B 8: dense ÷ ours, kernel"
    assert [goal.wanted for goal in goals] == [25, 6.5, 3]


def test_density_sweep_stops_at_the_first_loss():
    def at(density, ratio):
        return Measurement("", numbers={"density": density, "dense ÷ kernel": ratio})

    assert linear.never_slower_up_to([at(0.1, 5), at(0.2, 1.0), at(0.3, 0.9), at(0.4, 2)]) == 0.2
    assert linear.never_slower_up_to([at(0.1, 0.5)]) == 0
    assert len(linear.measure_density(TINY, densities=(0.1, 0.5), size=32, batch=4)) == 2


def test_threads_give_the_same_bits():
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    before = torch.get_num_threads()
    contest = dataclasses.replace(linear.THREADS, rows=[(LinearWorkload(64, 64, 0.3, 32), {})])
    table, goals = contest.run(TINY, 2)
    assert set(table.measurements[0].times) == {"1 thread", "2 threads"}
    assert not goals
    assert torch.get_num_threads() == before
