"""Memory of a layer that could not exist dense, measured as the peak of a real process."""

import json
import subprocess
import sys

SCRIPT = """
import json, torch, wirebound as wb
from wirebound.bench.scale_process import Peak
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
