"""Memory of a layer that could not exist dense, measured as the peak of a real process."""

import json
import subprocess
import sys

import pytest

from wirebound.ops import library

SCRIPT = """
import json, torch, wirebound as wb
from wirebound_lab.bench.fresh_process import Peak
layer = wb.SparseLinear(10**6, 10**6, bias=False, budget=10**6)
optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
rewiring = wb.DeepR(layer, optimizer, l1=0.1, temperature=1e-4)
rewired = 0
for _ in range(3):
    x = torch.randn(8, 10**6)
    layer(x).square().mean().backward()
    rewired += rewiring.step().rewired
    rewiring.zero_grad()
    layer.wiring.check()
peak = Peak().read()  # not ru_maxrss, which a process has from the one that started it
print(json.dumps({"peak": peak, "rewired": rewired, "active": layer.wiring.active,
                  "per_connection": wb.ledger(layer, rewiring).per_connection}))
"""


def test_a_million_by_a_million_within_a_gigabyte(implementation):
    environment = {"WIREBOUND_NATIVE": "1" if implementation == "native" else "0"}
    import os

    outcome = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env={**os.environ, **environment}, check=True
    )
    measured = json.loads(outcome.stdout)
    assert measured["peak"] < 1e9, measured
    assert measured["active"] == 10**6
    assert measured["rewired"] > 0
    assert measured["per_connection"] <= 24


# Adam's first step moves every θ by lr: at 1e-3 a third of all connections dies at once, at 1e-4 a twentieth.
MANY_DEATHS = """
import json, sys, torch, wirebound as wb
from wirebound_lab.bench.fresh_process import Peak
layer = wb.SparseLinear(10**6, 10**6, bias=False, budget=10**7)
rewiring = wb.DeepR(layer, torch.optim.Adam(layer.parameters(), lr=float(sys.argv[1])), l1=1e-4)
peak, measured = Peak(), []
x, g = torch.randn(32, 10**6), torch.ones(32, 10**6)
for _ in range(2):
    rewiring.zero_grad()
    y = layer(x)
    y.backward(g)
    del y
    peak.restart()
    before = peak.read()
    rewired = rewiring.step().rewired
    measured.append({"rewired": rewired, "rise": peak.read() - before, "peak": peak.read()})
layer.wiring.check()
print(json.dumps(measured))
"""


@pytest.mark.slow
@pytest.mark.skipif(library.load() is None, reason="the memory of the native kernels")
@pytest.mark.parametrize(("lr", "first_rise", "later_rise"), [(1e-3, 140e6, 60e6), (1e-4, 100e6, 20e6)])
def test_many_deaths_at_once_need_little_memory(lr, first_rise, later_rise):
    outcome = subprocess.run(
        [sys.executable, "-c", MANY_DEATHS, str(lr)], capture_output=True, text=True, check=True
    )
    first, second = json.loads(outcome.stdout)
    assert first["rewired"] > 300_000, first
    assert first["rise"] < first_rise, first  # 80 MB of it are Adam's moments, which are made here
    assert second["rise"] < later_rise, second
    assert max(first["peak"], second["peak"]) < 1e9, (first, second)
