"""A C library that goes on training the network on a microcontroller, by DEEP R, in memory that the caller owns.

The library itself is ``device/wirebound_device.h`` and ``.c``; here it is put into a folder with the network's settings
and, for a trained network, its connections, as a library for Arduino, PlatformIO, Zephyr or plain make.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from torch import nn

from wirebound.checkpoint.atomic import WriteError
from wirebound.export.device_network import DeviceNetwork, Rates, encode, read_trained
from wirebound.export.layers import require
from wirebound.export.write import settle_place
from wirebound.version import __version__

TRAINER_CHOICES = {"numbers": ("float", "fixed")}
_SKETCH = "LearnFromStream"
_PLACES = {  # where the files of ``device/`` go; others keep their place
    "wirebound_device.h": "src", "wirebound_device.c": "src", f"{_SKETCH}.ino": f"examples/{_SKETCH}",
}  # fmt: skip


@dataclass(frozen=True)
class Trainer:
    """What was written, and what it costs on the chip."""

    folder: Path
    network: DeviceNetwork
    state: int  # bytes of constants: the trained connections; 0 where the chip draws its own

    @property
    def memory(self) -> int:
        """Bytes that the caller gives to ``wb_init``; the context and the stack come on top."""
        return self.network.memory


def to_c_trainer(
    model: nn.Module, path: str | os.PathLike[str], *, numbers: str = "float", freeze: Sequence[int] = (), lr: float = 0.05,
    l1: float = 1e-4, noise: float = 0.0, momentum: float = 0.0, newborns: str = "share", loss: str = "cross-entropy",
    rewire_every: int = 1, pixels: float | None = 1 / 255,
) -> Trainer:  # fmt: skip
    """Write a C99 library with which a trained sparse perceptron learns on, on a microcontroller.

    Args:
        model: sparse linear layers with ReLU between them, in one budget or in one for each layer.
        path: the folder.
        numbers: kind of numbers on the chip, float or fixed (16-bit θ, no FPU needed).
        freeze: layers that stay as they are, counted from 0.
        lr: η on the chip at the start, for one example at a time.
        l1: α on the chip.
        noise, momentum: g and μ on the chip.
        newborns: layer of a newborn in a global budget, by initial share or uniform over all dormant.
        loss: cross-entropy or mean-square.
        rewire_every: steps between rewirings.
        pixels: inputs are bytes, of which the network sees ``pixels * x``; None: they are numbers.
    """
    rates = Rates(lr, l1, noise, momentum)
    settings = {"newborns": newborns, "loss": loss, "rewire_every": rewire_every, "pixels": pixels, "frozen": tuple(freeze)}
    network = read_trained(model, numbers=numbers, rates=rates, **settings)
    return write_trainer(network, path, encode(network, model))


def write_trainer(network: DeviceNetwork, path: str | os.PathLike[str], state: bytes = b"") -> Trainer:
    """Write the library for a network; without a state the chip draws its first connections itself."""
    place = settle_place(path, folder=True)
    strange = place.is_dir() and any(place.iterdir()) and not (place / "src" / "wirebound_device.h").exists()
    require(not strange, f"folder (={place}) holds other things: choose another name")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as beside:
            _fill(Path(beside), network, state)
            for file in sorted(Path(beside).rglob("*")):
                target = place / file.relative_to(beside)
                if file.is_file():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(file, target)
    except OSError as error:
        raise WriteError(f"{place} cannot be written ({error.strerror or error}): choose another place") from error
    return Trainer(place, network, len(state))


def _fill(folder: Path, network: DeviceNetwork, state: bytes) -> None:
    with as_file(files("wirebound.export") / "device") as sources:
        for file in _files(Path(sources)):
            name = file.relative_to(sources)
            target = folder / _PLACES.get(str(name), name.parent) / name.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    header = folder / "src" / "wirebound_device.h"
    text = header.read_text(encoding="utf-8")
    for switch, on in (("WB_FIXED", network.fixed), ("WB_INPUT_BYTES", network.pixels is not None)):
        before = next(line for line in text.splitlines() if line.startswith(f"#define {switch} "))
        text = text.replace(before, f"#define {switch} {int(on)}{before[len(f'#define {switch} 0') :]}")
    header.write_text(text, encoding="utf-8")
    told = {"version": __version__, "network": describe(network), "numbers": network.numbers, "memory": f"{network.memory:,}"}
    for about in (folder / "library.properties", folder / "library.json", folder / "README.md"):
        text = about.read_text(encoding="utf-8")
        for word, value in told.items():
            text = text.replace(f"@{word}@", value)
        about.write_text(text, encoding="utf-8")
    (folder / "src" / "network.h").write_text("\n".join(_network_header(network, state)) + "\n", encoding="utf-8")


def _files(folder: Path) -> Iterator[Path]:
    """All that belongs to the library; not what Python or a compiler left beside it."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix not in (".pyc", ".py", ".o", ".a"):
            yield file


def describe(network: DeviceNetwork) -> str:
    return f"{'-'.join(map(str, network.sizes))} with {network.connections} connections of {network.possible} possible"


def _network_header(network: DeviceNetwork, state: bytes) -> Iterator[str]:
    rates, layers = network.rates, len(network.counts)
    yield from (
        f"/* {describe(network)}. Written by wirebound {__version__}. */",
        *("#ifndef NETWORK_H", "#define NETWORK_H", "", '#include "wirebound_device.h"', ""),
        f"#define NETWORK_INPUTS {network.sizes[0]}u",
        f"#define NETWORK_OUTPUTS {network.sizes[-1]}u",
        f"#define NETWORK_MEMORY {network.memory}u /* bytes: wb_memory_needed(&network) */",
        f"#define NETWORK_STATE {network.state_bytes}u /* bytes of a slot: wb_state_size */",
        f"#define NETWORK_HAS_STATE {int(bool(state))}",
        "",
        "/* outputs, connections at the start, scale of the first weights, frozen */",
        f"static const wb_layer network_layers[{layers}] = {{",
    )
    for i, (outputs, count, scale) in enumerate(zip(network.sizes[1:], network.counts, network.scales, strict=True)):
        yield f"    {{{outputs}u, {count}u, {_rate(scale, network)}, {int(i in network.frozen)}u}},"
    switches = [
        f"{network.sizes[0]}u, {layers}u",
        "WB_CROSS_ENTROPY" if network.loss == "cross-entropy" else "WB_MEAN_SQUARE",
        "WB_PER_LAYER" if network.per_layer else "WB_GLOBAL",
        "WB_BY_SHARE" if network.newborns == "share" else "WB_UNIFORM",
        *(f"{int(network.bias)}u", f"{int(rates.momentum > 0)}u", f"{network.rewire_every}u", "network_layers"),
    ]
    numbers = [rates.lr, rates.l1, rates.noise, rates.momentum, 1.0 if network.pixels is None else network.pixels]
    yield from (
        *("};", "", "/* inputs, layers, loss, scope, newborns, bias, momentum, rewire_every, layers,"),
        " * seed, lr, l1, noise, momentum, what a byte stands for */",
        "static const wb_config network = {",
        f"    {', '.join(switches)},",
        f"    UINT64_C({network.seed}), {', '.join(_rate(value, network) for value in numbers)}}};",
    )
    if state:
        yield from ("", "/* The trained connections: wb_load_bytes(&ctx, network_state, sizeof network_state). */")
        yield f"static const uint8_t network_state[{len(state)}] = {{"
        yield from (f"    {', '.join(map(str, state[at : at + 24]))}," for at in range(0, len(state), 24))
        yield "};"
    yield from ("", "#endif")


def _rate(value: float, network: DeviceNetwork) -> str:
    if network.fixed and value >= 1:  # only where it has no effect, or is the largest scale
        return "0xffffffffu"
    return f"WB_RATE({value!r})"


