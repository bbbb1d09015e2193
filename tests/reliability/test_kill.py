"""kill -9 at random moments, again and again: the run that comes out is the one that was never interrupted."""

import random
import time

import pytest
from reliability_helpers import assert_same, config, kill_until_done

from wirebound_lab.run import train

CASES = {
    "fused": {},
    "module": {"engine": "module", "optimizer": "adam", "lr": 0.01, "eps": 1e-4},
    "fixed": {"method": "fixed", "optimizer": "momentum"},
    "dense": {"method": "dense", "engine": "module", "optimizer": "rmsprop", "lr": 0.002},
}


def _killed(tmp_path, settings, number, seed):
    """(kills, the folder) of one run that was killed at random moments."""
    chance = random.Random(seed)
    out = tmp_path / f"killed-{number}"
    # Mostly while it trains, sometimes while it starts: both happen.
    return kill_until_done(settings, out, lambda: chance.choice((0.02, 0.2, 0.5)) * chance.random() + 0.02), out


def _whole(tmp_path, settings):
    started = time.perf_counter()
    train(settings, tmp_path / "whole")
    return time.perf_counter() - started


@pytest.mark.parametrize("name", CASES)
def test_a_few_runs(tmp_path, name):
    settings = config(epochs=4, checkpoint_every=5, **CASES[name])
    _whole(tmp_path, settings)
    kills, out = _killed(tmp_path, settings, 0, seed=len(name))
    print(f"{name}: {kills} kills")
    assert_same(tmp_path / "whole", out)


@pytest.mark.slow
def test_a_hundred_runs(tmp_path):
    """100 of 100, over both paths and all methods."""
    total = same = 0
    for part, name in enumerate(CASES):
        folder = tmp_path / name
        folder.mkdir()
        settings = config(epochs=8, checkpoint_every=2, **CASES[name])
        _whole(folder, settings)
        for number in range(25):
            kills, out = _killed(folder, settings, number, seed=1000 * part + number)
            if kills == 0:  # it was quicker than the killer: try again, sooner
                kills, out = _killed(folder, settings, f"{number}-again", seed=5000 + number)
            assert_same(folder / "whole", out)
            total += kills
            same += 1
    print(f"{same} of 100 runs bit-identical after {total} kills")
    assert same == 100
    assert total >= 100
