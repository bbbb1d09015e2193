"""The section of the recurrent layers on small sizes: answers are compared, wrong ones are found, memory is read."""

import dataclasses

import pytest

from wirebound_lab.bench import layers
from wirebound_lab.bench.contest import Settings, WrongAnswerError, require_equal

TINY = Settings(seconds=0.001, rounds=2)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_layer_is_measured(kind):
    workload = layers.RecurrentWorkload(kind, 5, 8, 6, 4, 0.3)
    measurement = layers.RECURRENT.measure(workload, TINY)
    assert measurement.workload == f"{kind} 5→8, T 6, B 4, 30 %"
    assert set(measurement.times) == {"dense", "ours"}
    assert measurement.numbers["dense ÷ ours"] > 0


@pytest.mark.parametrize("part", ["y", "dx", "dw", "bias_ih_l0", "bias_hh_l0"])
def test_a_wrong_answer_is_found(part):
    dense, ours = layers.recurrent(layers.RecurrentWorkload("LSTM", 5, 8, 6, 4, 0.3))
    wrong = {**ours.answer()}
    wrong[part] = wrong[part] * 1.01
    with pytest.raises(WrongAnswerError, match=f"{part} differs"):
        require_equal(dataclasses.replace(ours, answer=lambda: wrong), dense.answer(), layers.RECURRENT.tolerance)


@pytest.mark.slow
def test_memory_of_processes():
    measurement = layers.lstm_memory(64, TINY)
    assert measurement.numbers["peak RSS of ours, GB"] >= measurement.numbers["of which imports, GB"] > 0


@pytest.mark.slow
def test_a_process_says_what_went_wrong():
    with pytest.raises(OSError, match="input_size"):
        layers.run_process(layers.MeasuredNetwork("lstm", width=0, size=2), True)
