"""The machine that runs the C trainer: the program of ``emulator/main.c`` as a process that is taught through pipes.

``host`` is this computer. The chips are QEMU's: a Cortex-M4 with an FPU (MPS2 board, AN386) and the Cortex-M0 of a
micro:bit, which has 16 KB of memory and no FPU. The program for a chip is linked for a stated size of memory, and nothing
else; data come and go by semihosting.
"""

import contextlib
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from wirebound.export.device_network import DeviceNetwork

STEP, PREDICT, REPORT, FREEZE, CHECKED_STEP, OUTPUTS, CALIBRATE = range(1, 8)
# The order of wb_status.
STATUS = (
    "WB_OK", "WB_NULL_POINTER", "WB_BAD_SIZES", "WB_BAD_BUDGET", "WB_BAD_SETTING", "WB_BAD_RATE", "WB_TOO_SMALL", "WB_MISALIGNED",
    "WB_BAD_LABEL", "WB_BAD_LAYER", "WB_NOT_FINITE", "WB_NO_STATE", "WB_OTHER_NETWORK", "WB_STORAGE_FAILED", "WB_BROKEN",
)  # fmt: skip
_AT_ONCE = 2000  # commands in a row: their answers must fit into a pipe
_PATIENCE = 30.0  # seconds for a program to start
_EMULATOR = ("qemu-system-arm", "-nographic", "-monitor", "none", "-serial", "none", "-semihosting-config", "enable=on,target=native")


class DeviceError(RuntimeError):
    """The trainer cannot be built or does not answer; the message says what to do."""


@dataclass(frozen=True)
class Board:
    """What a program is built for and runs on."""

    title: str
    machine: str | None = None  # of QEMU; None: this computer
    ram: int = 0  # bytes, of the real board or as stated


MACHINES = {
    "host": Board("this computer"),
    "cortex-m4": Board("emulated Cortex-M4 with FPU", "mps2-an386", 28 * 1024),
    "cortex-m0": Board("emulated Cortex-M0 of a micro:bit, no FPU", "microbit", 16 * 1024),
}


@dataclass(frozen=True)
class Report:
    """What a trainer says of itself."""

    step: int
    ticks: int  # of the clock, in all steps so far
    timed: int  # those steps
    stack: int  # bytes, at most so far; 0 on the host, which does not know
    variables: int  # bytes of all variables: the state, the context, one example; likewise
    context: int  # bytes of wb_context
    active: list[int]
    newborns: list[int]  # since the last report
    state: bytes

    @property
    def ram(self) -> int:
        """Bytes of all memory that was ever in use."""
        return self.stack + self.variables


def build(folder: Path, machine: str, ram: int | None = None) -> Path:
    """Compile the program of an exported trainer."""
    board = MACHINES[machine]
    needed = ["make", "cc"] if board.machine is None else ["make", "arm-none-eabi-gcc", "qemu-system-arm"]
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if missing:
        packages = "make gcc" if board.machine is None else "make gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"
        raise DeviceError(f"machine (={machine!r}) needs {', '.join(missing)}: apt-get install {packages}")
    command = ["make", "-B", "-C", str(folder), machine, f"RAM={ram or board.ram}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        text = (done.stderr or done.stdout).strip()
        raise DeviceError(f"the trainer does not fit, or cannot be built for {machine}: {text[-1200:]}")
    return folder / machine


@contextlib.contextmanager
def connect(
    program: Path, network: DeviceNetwork, machine: str, *, ram: int | None = None, count: bool = False
) -> Iterator["Machine"]:
    """Start a program that was built for so much memory, and talk to it. ``count``: QEMU counts instructions for the clock."""
    board = MACHINES[machine]
    with tempfile.TemporaryDirectory(prefix="wirebound-") as place:
        folder = Path(place)
        if board.machine is None:
            process = subprocess.Popen([program.resolve()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
            assert process.stdin is not None
            assert process.stdout is not None
            to, back = process.stdin, process.stdout
        else:
            for name in ("to_chip", "from_chip"):
                os.mkfifo(folder / name)
            exact = ["-icount", "shift=0"] if count else []
            command = [*_EMULATOR, "-M", board.machine, *exact, "-kernel", str(program.resolve())]
            errors = (folder / "errors").open("w+")
            process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
            to, back = _open_pipes(folder, process)
        try:
            yield Machine(process, to, back, network, ram or board.ram)
        finally:
            for stream in (to, back):
                with contextlib.suppress(OSError):
                    stream.close()
            process.terminate()
            process.wait()


def _open_pipes(folder: Path, process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """Both ends of the pipes, once the chip has opened its own; an error if it ends before."""
    found: list[IO[bytes]] = []

    def open_both() -> None:
        found.append((folder / "to_chip").open("wb", buffering=0))
        found.append((folder / "from_chip").open("rb", buffering=0))

    thread = threading.Thread(target=open_both, daemon=True)
    thread.start()
    until = time.monotonic() + _PATIENCE
    while thread.is_alive() and process.poll() is None and time.monotonic() < until:
        thread.join(0.05)
    if len(found) < 2:
        process.terminate()
        process.wait()
        said = (folder / "errors").read_text()[-400:]
        for name, mode in (("to_chip", os.O_RDONLY), ("from_chip", os.O_WRONLY)):  # let the thread go
            with contextlib.suppress(OSError):
                os.close(os.open(folder / name, mode | os.O_NONBLOCK))
        raise DeviceError(f"the emulated chip did not start: {said}")
    return found[0], found[1]


class Machine:
    """A running trainer."""

    def __init__(self, process: "subprocess.Popen[bytes]", to: IO[bytes], back: IO[bytes], network: DeviceNetwork, ram: int) -> None:
        self.process, self.network, self.ram = process, network, ram
        self._to, self._back = to, back
        status, self.memory = struct.unpack("<2I", self._read(8))
        self._require(status, "wb_init")

    def steps(
        self, x: np.ndarray, labels: np.ndarray, rates: np.ndarray, *, checked: bool = False, pause: Callable[[], bool] = lambda: False
    ) -> np.ndarray:
        """One step for each example; ``rates`` are [steps, 3]: η, ηα and the noise's standard deviation. The losses."""
        losses = np.empty(len(x), dtype=np.float32)
        for first in range(0, len(x), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            commands = self._commands(CHECKED_STEP if checked else STEP, x[part])
            commands["label"], commands["rates"] = labels[part], self._rate_bits(rates[part])
            answers = self._ask(commands)
            if answers["status"].any():
                at = int(answers["status"].nonzero()[0][0])
                self._require(int(answers["status"][at]), f"step {first + at + 1} of these")
            values = answers["value"]
            losses[part] = values.view(np.int32) / 65536 if self.network.fixed else values.view(np.float32)
            if pause():
                return losses[: first + len(commands)]
        return losses

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The label of each example."""
        found = np.empty(len(x), dtype=np.int64)
        for first in range(0, len(x), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            found[part] = self._ask(self._commands(PREDICT, x[part]))["value"]
        return found

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """The outputs of one example."""
        self.predict(x[None])
        size = self.network.sizes[-1]
        self._to.write(struct.pack("<5I", OUTPUTS, 0, size, 0, 0))
        kind = np.dtype("<i4" if self.network.fixed else "<f4")
        found = np.frombuffer(self._read(4 * size), kind)
        return found / 65536 if self.network.fixed else found

    def freeze(self, layer: int, frozen: bool = True) -> None:
        self._to.write(struct.pack("<5I", FREEZE, layer, frozen, 0, 0))
        self._require(struct.unpack("<2I", self._read(8))[0], f"freezing layer {layer}")

    def instructions(self) -> float:
        """Of a step, the mean of all so far: by the clock, which counts instructions if QEMU does (``connect(count=True)``)."""
        self._to.write(struct.pack("<5I", CALIBRATE, 0, 0, 0, 0))
        ticks, _ = struct.unpack("<2I", self._read(8))
        last = self.report()
        return last.ticks / max(1, last.timed) * 2**20 / ticks

    def report(self) -> Report:
        """Where training stands; raises ``DeviceError`` if the connections are not exactly K valid ones."""
        self._to.write(struct.pack("<5I", REPORT, 0, 0, 0, 0))
        status, step, ticks, timed, stack, variables, context, size = struct.unpack("<8I", self._read(32))
        layers = np.frombuffer(self._read(8 * len(self.network.counts)), "<u4").reshape(-1, 2)
        state = self._read(size)
        self._require(status, f"the connections after step {step}")
        if stack and stack + variables >= self.ram:  # no painted word is left between them
            raise DeviceError(f"the stack has reached the variables: {self.ram:,} bytes of memory are too few")
        return Report(step, ticks, timed, stack, variables, context, layers[:, 0].tolist(), layers[:, 1].tolist(), state)

    def _commands(self, what: int, x: np.ndarray) -> np.ndarray:
        kind = "u1" if self.network.pixels is not None else "<i2" if self.network.fixed else "<f4"
        record = np.dtype([("what", "<u4"), ("label", "<u4"), ("rates", "<u4", 3), ("x", kind, self.network.sizes[0])])
        commands = np.zeros(len(x), dtype=record)
        commands["what"] = what
        if kind == "<i2":
            x = np.clip(np.rint(x * 2048), -32767, 32767)
        commands["x"] = x
        return commands

    def _rate_bits(self, rates: np.ndarray) -> np.ndarray:
        if self.network.fixed:
            return np.minimum(np.floor(rates.astype(np.float64) * 2**32 + 0.5), 2**32 - 1).astype(np.uint32)
        return rates.astype(np.float32).view(np.uint32)

    def _ask(self, commands: np.ndarray) -> np.ndarray:
        """Send commands and a request for a flush, and read the answers."""
        flush = b"" if self.process.args[0] == _EMULATOR[0] else struct.pack("<5I", OUTPUTS, 0, 0, 0, 0)  # type: ignore[index]
        data = commands.tobytes() + flush
        view, sent = memoryview(data), 0
        try:
            while sent < len(view):
                sent += self._to.write(view[sent:]) or 0
        except BrokenPipeError:
            raise DeviceError(self._gone()) from None
        return np.frombuffer(self._read(8 * len(commands)), np.dtype([("status", "<u4"), ("value", "<u4")]))

    def _read(self, size: int) -> bytes:
        parts, left = [], size
        while left:
            part = self._back.read(left)
            if not part:
                raise DeviceError(self._gone())
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _gone(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        return f"the trainer ended by itself (code {self.process.returncode}): its memory or its stack may be too small"

    def _require(self, status: int, what: str) -> None:
        if status:
            name = STATUS[status] if status < len(STATUS) else str(status)
            raise DeviceError(f"{what}: the trainer says {name}")
