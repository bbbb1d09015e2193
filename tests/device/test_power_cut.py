"""Saving: whatever happens while a state is written, the older or the newer one is read."""

import subprocess
from pathlib import Path

import pytest
from device_helpers import small

from wirebound.export import write_trainer

PROGRAM = Path(__file__).parent / "power_cut.c"


def cut_everywhere(network, folder, checks=()):
    source = write_trainer(network, folder / "trainer").folder / "src"
    program = folder / "power_cut"
    command = ["cc", "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", *checks, f"-I{source}", PROGRAM, source / "wirebound_device.c", "-lm", "-o", program]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    # Every byte was a cut: all of them, and the end.
    assert [int(line.split()[1]) for line in lines] == [network.state_bytes + 4 + 1, 2 * network.state_bytes + 1]


def test_power_is_cut_at_every_byte(numbers, tmp_path):
    cut_everywhere(small(numbers, bias=True), tmp_path)


@pytest.mark.slow
def test_power_is_cut_at_every_byte_of_the_paper_s_network(numbers, tmp_path):
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    cut_everywhere(small(numbers, bias=True), tmp_path, checks)
    cut_everywhere(small(numbers, sizes=(784, 300, 100, 10), counts=(1751, 685, 226)), tmp_path)
