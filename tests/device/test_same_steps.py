"""The float build takes the very steps of the library for the same seed: positions, signs and the bits of θ."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wirebound import ops

SCRIPT = Path(__file__).parent / "same_steps.py"


# The first few are part of the quick suite.
CASES = ["the paper's network", "noise, biases", "a budget for each layer"]
MORE = ["nearly all die, nearly full", "momentum, uniform newborns", "rewiring every seventh step", "mean square", "from a trained network", "a frozen layer"]


def compare(cases):
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    environment = {**os.environ, "WIREBOUND_ISA": "baseline"}
    done = subprocess.run([sys.executable, SCRIPT, *cases], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    if found["isa"] != "baseline":
        pytest.skip(f"kernels for {found['isa']} join products and sums, so θ agree up to rounding only")
    assert sorted(found["cases"]) == sorted(cases)
    for case, result in found["cases"].items():
        assert result["rewired"] > 20, f"{case}: nothing to compare"
        assert result["positions"], f"{case}: positions or signs differ"
        assert result["loss"][0] == pytest.approx(result["loss"][1], rel=1e-4), case
        if result["exact"]:
            assert result["theta"], f"{case}: θ differ by {result['apart']}"
            assert result["all"], f"{case}: biases differ"
        else:  # modules sum in another order
            assert result["apart"] < 1e-5, case


def test_the_very_same_steps():
    compare(CASES)


@pytest.mark.slow
def test_the_very_same_steps_of_every_kind():
    compare(MORE)
