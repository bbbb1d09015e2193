"""The race itself: turns, counts, and the number of threads. No test says how long anything takes."""

import pytest
import torch

from wirebound_lab.bench.contest import race, threads


def test_all_contenders_have_their_turns():
    calls = {"a": 0, "b": 0}

    def run(name):
        calls[name] += 1

    times = race({name: lambda name=name: run(name) for name in calls}, seconds=0.002, rounds=3)
    for name, timing in times.items():
        assert timing.samples >= 3
        assert 0 < timing.best <= timing.median
        assert calls[name] >= timing.samples


def test_threads_are_put_back_even_after_an_error():
    before = torch.get_num_threads()

    def fail():
        with threads(before + 1):
            assert torch.get_num_threads() == before + 1
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert torch.get_num_threads() == before
