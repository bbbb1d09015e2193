"""One file over https, given up quickly: no answer, a stall, a trickle, too many or too few bytes."""

from __future__ import annotations

import http.client
import queue
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from .errors import DataError

ANSWER_SECONDS = 8.0  # name lookup, connection to any of the host's addresses, and the first header
STALL_SECONDS = 10.0  # between two pieces of the body, and of each look at its speed
SLOWEST = 50_000  # bytes a second between two such looks; less is not worth waiting for

_PIECE = 1 << 16


def download(url: str, target: Path, limit: int) -> None:
    """Write what ``url`` holds to ``target``; it must be complete and at most ``limit`` bytes.

    ``target`` belongs to the caller's working folder: after an error it may hold a part of the file.
    """
    try:
        with _answer(url) as response, target.open("wb") as out:
            _copy(url, response, out, limit)
    except DataError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataError(f"{url}: {_reason(error)}") from error


def _copy(url: str, response: http.client.HTTPResponse, out: IO[bytes], limit: int) -> None:
    promised = response.length  # None if the server does not say
    if promised is not None and promised > limit:
        raise DataError(f"{url}: Content-Length (={promised}) must be at most {limit}")
    got, looked, had = 0, time.monotonic(), 0
    while piece := response.read1(_PIECE):  # read1: one wait on the socket, so a trickle is noticed
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
        raise DataError(
            f"{url}: body (={got} bytes) must be Content-Length (={promised}), download is truncated"
        )


def _answer(url: str) -> http.client.HTTPResponse:
    """Open ``url`` within ANSWER_SECONDS.

    In a thread, because no timeout of the standard library covers this: a name lookup has none, and a
    connection gets a new one for each address of the host. A thread that is given up ends by itself.
    """
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


def _reason(error: Exception) -> str:
    # urllib wraps the real error as "<urlopen error [Errno -2] Name or service not known>".
    inner = getattr(error, "reason", None)
    code = getattr(error, "code", None)
    text = str(inner) if inner else str(error) or type(error).__name__
    return f"HTTP {code} {text}" if code else text
