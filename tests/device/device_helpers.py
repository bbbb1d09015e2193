"""Small networks to build trainers for, and examples to teach them."""

import numpy as np

from wirebound.export.device_network import DeviceNetwork, Rates, first_scales


def small(numbers: str = "float", **other) -> DeviceNetwork:
    """A network whose layers are thin, half full and almost full."""
    settings = {"sizes": (30, 12, 8, 5), "counts": (70, 50, 36), "rates": Rates(0.05, 1e-3), "pixels": 1 / 255, **other}
    scales = first_scales(settings["sizes"], settings["counts"], "sparse-fan-in")
    return DeviceNetwork(scales=scales, numbers=numbers, seed=7, **settings)


VARIANTS = {
    "plain": {},
    "momentum": {"rates": Rates(0.02, 1e-3, momentum=0.9)},
    "noise and bias": {"rates": Rates(0.05, 1e-3, noise=0.05), "bias": True},
    "a budget for each layer": {"per_layer": True, "bias": True, "rates": Rates(0.05, 1e-3, momentum=0.5)},
    "uniform newborns": {"newborns": "uniform"},
    "all die": {"rates": Rates(0.5, 0.9)},
    "rewiring now and then": {"rewire_every": 7, "rates": Rates(0.05, 0.05)},
    "mean square": {"loss": "mean-square"},
    "numbers as inputs": {"pixels": None},
    "a frozen layer": {"frozen": (1,), "rates": Rates(0.05, 0.1)},
    "one layer": {"sizes": (9, 4), "counts": (11,)},
    "full": {"sizes": (6, 5, 3), "counts": (30, 15)},
    "one connection": {"sizes": (3, 2, 2), "counts": (1, 0)},
}
QUICK = ("a budget for each layer", "all die", "full")


def random_steps(network, steps, seed=0):
    draw = np.random.default_rng(seed)
    if network.pixels is None:
        x = draw.normal(size=(steps, network.sizes[0])).astype(np.float32)
    else:
        x = draw.integers(0, 256, (steps, network.sizes[0])) * (draw.random((steps, network.sizes[0])) < 0.6)
    lr, l1, noise = network.rates.lr, network.rates.l1, network.rates.noise
    return x, draw.integers(0, network.sizes[-1], steps), np.tile([lr, lr * l1, lr * noise], (steps, 1))
