"""From which density on dense blocks are faster than the sparse kernels: sparse and blocks as multiples of dense torch, forward
and both gradients through modules. ``src/wirebound/ops/native/choice.py`` has the constants that follow.

    OMP_NUM_THREADS=1 python benchmarks/crossover.py [--linear 1024x1024 784x300] [--conv 64x64x5x12] [--batch 32 128]
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

import torch

import wirebound as wb
from wirebound.ops.native import choice

DENSITIES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_NAMES = ("LINEAR_DENSITY", "CONV_DENSITY")


def _steps(layer: torch.nn.Module, x: torch.Tensor, upstream: torch.Tensor, density: float) -> Callable[[], None]:
    def run() -> None:
        for name in _NAMES:
            setattr(choice, name, density)  # 0: blocks, 2: the sparse kernels
        layer.zero_grad()
        x.grad = None
        layer(x).backward(upstream)

    return run


def best(contenders: Mapping[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """The shortest time of each, measured in turns for ``seconds`` altogether."""
    times = dict.fromkeys(contenders, float("inf"))
    for run in contenders.values():
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def measure(layer: wb.SparseLinear | wb.SparseConv2d, x: torch.Tensor, seconds: float) -> dict[str, float]:
    """Seconds of the sparse kernels, of blocks and of the dense layer."""
    twin, before = layer.dense_twin(), {name: getattr(choice, name) for name in _NAMES}
    x = x.requires_grad_()
    upstream = torch.randn_like(twin(x))
    modules = {"sparse": (layer, 2.0), "blocks": (layer, 0.0), "dense": (twin, 0.0)}
    try:
        return best({name: _steps(module, x, upstream, density) for name, (module, density) in modules.items()}, seconds)
    finally:
        for name, value in before.items():
            setattr(choice, name, value)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--linear", nargs="*", default=["1024x1024", "784x300"], help="inputs x outputs")
    parser.add_argument("--conv", nargs="*", default=["64x64x5x12"], help="channels in x out x kernel x image")
    parser.add_argument("--batch", nargs="*", type=int, default=[32, 128])
    parser.add_argument("--density", nargs="*", type=float, default=list(DENSITIES))
    parser.add_argument("--seconds", type=float, default=0.5, help="for each line")
    given = parser.parse_args(arguments)
    print("work                             sparse ÷ dense   blocks ÷ dense   sparse ÷ blocks   dense")
    for kind, texts in (("linear", given.linear), ("conv", given.conv)):
        for text in texts:
            sizes = [int(size) for size in text.split("x")]
            for batch in given.batch:
                for density in given.density:
                    layer: wb.SparseLinear | wb.SparseConv2d
                    if kind == "linear":
                        layer, shape = wb.SparseLinear(sizes[0], sizes[1], connectivity=density, seed=0), (batch, sizes[0])
                    else:
                        layer = wb.SparseConv2d(*sizes[:3], connectivity=density, seed=0)
                        shape = (batch, sizes[0], sizes[3], sizes[3])
                    t = measure(layer, torch.randn(shape), given.seconds)
                    ratios = (t["sparse"] / t["dense"], t["blocks"] / t["dense"], t["sparse"] / t["blocks"])
                    columns = "".join(f"{ratio:>17.2f}" for ratio in ratios)
                    print(f"{f'{kind} {text}, B {batch}, {100 * density:g} %':<30}{columns}{1e3 * t['dense']:>9.2f} ms", flush=True)


if __name__ == "__main__":
    main()
