"""The soak, for a few seconds in the quick suite and for ten minutes in the long one; in a process of its own, because
it may end in a crash, changes the number of threads and takes signals."""

import subprocess
import sys
from pathlib import Path

import pytest

_SOAK = Path(__file__).with_name("soak.py")


def _soak(seconds, seed):
    command = [sys.executable, str(_SOAK), "--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_soak_of_a_few_seconds():
    assert " checks against the dense twin" in _soak(5, seed=1)


@pytest.mark.slow
def test_a_soak_of_ten_minutes():
    print(_soak(600, seed=0))
