"""What the data tests share: where real data may be, small idx files, a web server that can misbehave."""

from __future__ import annotations

import gzip
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

# The data that is looked for when WIREBOUND_DATA is not set: a folder beside the repository.
BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Fails if Python holds ``size`` bytes more at any time inside than it did before."""
    already = tracemalloc.is_tracing()
    if not already:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] - before < size
    finally:
        if not already:
            tracemalloc.stop()


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def put(folder: Path, contents: dict[str, bytes], packed: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / (f"{name}.gz" if packed else name)).write_bytes(
            gzip.compress(content) if packed else content
        )
    return folder


Behaviour = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Serves ``pages`` on 127.0.0.1; a page is its bytes, or a function that does what it likes."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Behaviour] = {}
        self.asked: list[str] = []
        self.closing = threading.Event()  # what a hanging page waits for
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                page = server.pages.get(self.path)
                try:
                    if page is None:
                        self.send_error(404)
                    elif callable(page):
                        page(self)
                    else:
                        server.send(self, page, len(page))
                except OSError:  # the client gave up, as it should
                    pass

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @staticmethod
    def send(handler: BaseHTTPRequestHandler, body: bytes, length: int | None) -> None:
        handler.send_response(200)
        if length is not None:
            handler.send_header("Content-Length", str(length))
        handler.end_headers()
        handler.wfile.write(body)

    def hang(self, handler: BaseHTTPRequestHandler) -> None:
        self.closing.wait(60)

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
