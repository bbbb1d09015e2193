"""The sweep over densities on small layers."""

import pytest

from wirebound_lab.bench import density
from wirebound_lab.bench.contest import Settings

TINY = Settings(seconds=0.001, rounds=2, kind="avx512")


@pytest.mark.parametrize(
    "layer", [density.linear(32, 4), density.conv(4, 3, 5, 2), density.lstm(5, 8, 6, 4)], ids=lambda layer: layer.label
)
def test_any_density(layer):
    found = density.sweep(layer, (10, 100), TINY)
    assert list(found.curve) == [10.0, 100.0]
    assert found.numbers[density.SLOWEST] == 1 / min(found.curve.values())
    assert found.curve[found.numbers["slowest at, %"]] == min(found.curve.values())


def test_faster_up_to_the_first_loss():
    assert density.faster_up_to({10: 5, 20: 1.0, 30: 0.9, 40: 2}) == 20
    assert density.faster_up_to({10: 0.5}) == 0


def test_goals(monkeypatch):
    monkeypatch.setattr(density, "LAYERS", (density.linear(32, 4), density.conv(4, 3, 5, 2)))
    section = density.measure(Settings(seconds=0.001, rounds=2, quick=True, kind="avx512"))
    wanted = {goal.subject: (goal.wanted, goal.at_most) for goal in section.goals}
    assert wanted == {
        "Linear 32→32, B 4: faster than dense up to a density of": (50, False),
        "Linear 32→32, B 4: slowest at any density, ours ÷ dense": (1.15, True),
        "Conv 3×3 4→4 on 5×5, B 2: slowest at any density, ours ÷ dense": (1.15, True),
    }
