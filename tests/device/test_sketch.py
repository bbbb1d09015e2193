"""The sketch for Arduino, compiled with as much of Arduino as it uses: it learns from a stream and survives a restart."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from device_helpers import small

from wirebound.export import write_trainer
from wirebound.export.device_network import Rates

HERE = Path(__file__).parent
SKETCH = HERE.parent.parent / "examples" / "LearnFromStream" / "LearnFromStream.ino"


@pytest.fixture
def program(tmp_path):
    if shutil.which("c++") is None:
        pytest.skip("the sketch needs a C++ compiler (c++)")
    folder = write_trainer(small("fixed", rates=Rates(0.1, 1e-4)), tmp_path / "trainer").folder
    sketch = folder / "examples" / "LearnFromStream" / "LearnFromStream.ino"
    assert sketch.read_bytes() == SKETCH.read_bytes(), "examples/ and the package must hold the same sketch"
    main = tmp_path / "main.cpp"
    main.write_text(f'#include <Arduino.h>\n#include "{sketch}"\nint main() {{ setup(); for (;;) loop(); }}\n')
    source = folder / "src" / "wirebound_device.c"
    subprocess.run(["cc", "-std=c99", "-O1", "-c", source, "-o", tmp_path / "library.o"], check=True)
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-DESP32", f"-I{HERE / 'arduino'}", f"-I{folder / 'src'}"]
    subprocess.run([*command, main, tmp_path / "library.o", "-o", tmp_path / "sketch"], check=True)
    return tmp_path / "sketch"


def test_it_learns_from_a_stream_and_survives_a_restart(program):
    draw = np.random.default_rng(0)
    patterns = draw.integers(0, 256, (5, 30), dtype=np.uint8)

    def tell(messages):
        done = subprocess.run([program], input=b"".join(messages), capture_output=True, cwd=program.parent, check=True)
        return done.stdout.decode().splitlines()

    labels, questions = draw.integers(0, 5, 3000), [b"P" + pattern.tobytes() for pattern in patterns]
    learned = tell([*(b"L" + bytes([label]) + patterns[label].tobytes() for label in labels), b"S", *questions])
    losses = [float(line.split()[1]) for line in learned if line.startswith("learned")]
    assert len(losses) == 3000
    assert np.mean(losses[-100:]) < 0.3 * np.mean(losses[:100])
    assert learned[-6] == "saved"
    assert sum(line == f"label {label}" for label, line in enumerate(learned[-5:])) >= 4
    # Another start of the program: what it learned is there, because it was kept.
    assert tell(questions) == ["ready", *learned[-5:]]
    assert tell([b"L\x09" + patterns[0].tobytes()])[-1] == "error WB_BAD_LABEL"
    (program.parent / "eeprom").unlink()
    assert tell(questions) != ["ready", *learned[-5:]]
