"""What the tests of trainers need. Helpers beside the tests can be imported by name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))

from device_helpers import QUICK, VARIANTS

from wirebound.export import write_trainer
from wirebound.export.device_network import DeviceNetwork


def pytest_collection_modifyitems(items):
    if shutil.which("cc") is None or shutil.which("make") is None:
        for item in items:
            if "tests/device" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="trainers need a C compiler (cc) and make"))


@pytest.fixture(params=["float", "fixed"])
def numbers(request):
    return request.param


@pytest.fixture(params=[v if v in QUICK else pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS])
def variant(request):
    return VARIANTS[request.param]


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory):
    """The program of a network under both sanitizers; the library is compiled once for each kind of numbers and inputs."""
    folder, made = tmp_path_factory.mktemp("sanitized"), {}
    flags = ["-std=c99", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

    def program(network: DeviceNetwork) -> Path:
        kind = f"{network.numbers}-{network.pixels is None}"
        place = write_trainer(network, folder / f"trainer-{len(made)}").folder
        if kind not in made:
            made[kind] = folder / f"{kind}.o"
            subprocess.run(["cc", *flags, "-O1", "-c", place / "src" / "wirebound_device.c", "-o", made[kind]], check=True)
        made[place] = place / "program"
        sources = [place / "emulator" / "main.c", place / "emulator" / "host.c", made[kind]]
        subprocess.run(["cc", *flags, f"-I{place}/src", f"-I{place}/emulator", *sources, "-lm", "-o", made[place]], check=True)
        return made[place]

    return program
