"""From which density on dense blocks, or Winograd's algorithm, are faster than the sparse kernels: all as multiples of dense
torch, forward and both gradients through modules. ``src/wirebound/ops/native/choice.py`` has the constants that follow.

    OMP_NUM_THREADS=1 python benchmarks/crossover.py [--linear 1024x1024 784x300] [--conv 64x64x5x12] [--batch 32 128]
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

import torch

import wirebound as wb
from wirebound.ops.native import choice

DENSITIES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_NAMES = ("LINEAR_DENSITY", "CONV_DENSITY", "WINOGRAD_COST")
_NEVER = float("inf")
_SETTINGS = {"sparse": (_NEVER, _NEVER, _NEVER), "blocks": (0.0, 0.0, _NEVER), "winograd": (_NEVER, _NEVER, 0.0)}


def _steps(layer: torch.nn.Module, x: torch.Tensor, upstream: torch.Tensor, kind: str) -> Callable[[], None]:
    def run() -> None:
        for name, value in zip(_NAMES, _SETTINGS.get(kind, ()), strict=False):
            setattr(choice, name, value)
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
    """Seconds of the dense layer, of the sparse kernels, of blocks and, for convolutions that have it, of Winograd's algorithm."""
    twin, before = layer.dense_twin(), {name: getattr(choice, name) for name in _NAMES}
    x = x.requires_grad_()
    upstream = torch.randn_like(twin(x))
    kinds = ["dense", "sparse", "blocks"]
    choice.WINOGRAD_COST = 0.0
    if isinstance(layer, wb.SparseConv2d) and choice.conv_by_winograd(layer.window, x.shape[2], x.shape[3], 1):
        kinds.append("winograd")
    try:
        return best({kind: _steps(twin if kind == "dense" else layer, x, upstream, kind) for kind in kinds}, seconds)
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
    print("work                             sparse ÷ dense   blocks ÷ dense   winograd ÷ dense   dense")
    for kind, texts in (("linear", given.linear), ("conv", given.conv)):
        for text in texts:
            sizes = [int(size) for size in text.split("x")]
            for batch in given.batch:
                for density in given.density:
                    layer: wb.SparseLinear | wb.SparseConv2d
                    if kind == "linear":
                        layer, shape = wb.SparseLinear(sizes[0], sizes[1], connectivity=density, seed=0), (batch, sizes[0])
                    else:
                        layer = wb.SparseConv2d(*sizes[:3], padding=sizes[2] // 2, connectivity=density, seed=0)
                        shape = (batch, sizes[0], sizes[3], sizes[3])
                    t = measure(layer, torch.randn(shape), given.seconds)
                    ratios = [f"{t[name] / t['dense']:.2f}" if name in t else "–" for name in _SETTINGS]
                    columns = "".join(f"{ratio:>17}" for ratio in ratios)
                    print(f"{f'{kind} {text}, B {batch}, {100 * density:g} %':<30}{columns}{1e3 * t['dense']:>9.2f} ms", flush=True)


if __name__ == "__main__":
    main()
