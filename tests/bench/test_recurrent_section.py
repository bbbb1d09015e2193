"""The section of the recurrent layers on small sizes: answers are compared, wrong ones are found, memory is read."""

import dataclasses

import pytest

from wirebound_lab.bench import memory, recurrent
from wirebound_lab.bench.contest import require_equal
from wirebound_lab.bench.results import Settings, WrongAnswerError

TINY = Settings(seconds=0.001, rounds=2)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_layer_is_measured(kind):
    workload = recurrent.RecurrentWorkload(kind, 5, 8, 6, 4, 0.3)
    measurement = recurrent.LAYERS.measure(workload, TINY)
    assert measurement.workload == f"{kind} 5→8, T 6, B 4, 30 %"
    assert set(measurement.times) == {"dense", "ours"}
    assert measurement.numbers["dense ÷ ours"] > 0


@pytest.mark.parametrize("part", ["y", "dx", "dw", "bias_ih_l0", "bias_hh_l0"])
def test_a_wrong_answer_is_found(part):
    dense, ours = recurrent.line_up(recurrent.RecurrentWorkload("LSTM", 5, 8, 6, 4, 0.3))
    wrong = {**ours.answer()}
    wrong[part] = wrong[part] * 1.01
    with pytest.raises(WrongAnswerError, match=f"{part} differs"):
        require_equal(dataclasses.replace(ours, answer=lambda: wrong), dense.answer(), recurrent.LAYERS.tolerance)


@pytest.mark.slow
def test_memory_of_processes():
    measurement = memory.measure_lstm(64, TINY)
    assert measurement.numbers["peak RSS of ours, GB"] >= measurement.numbers["of which imports, GB"] > 0


def test_a_process_says_what_went_wrong():
    with pytest.raises(OSError, match="input_size"):
        memory.run_process(memory.MeasuredNetwork("lstm", width=0, size=2), True)
