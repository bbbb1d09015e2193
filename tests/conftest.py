"""What all tests share: where the real data is, and both implementations of every op."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from wirebound import ops

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))  # its studies are tested as modules
_BESIDE = ROOT.parent / "shared" / "data"
if "WIREBOUND_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["WIREBOUND_DATA"] = str(_BESIDE)


# A shell that starts the tests in the background lets them ignore Ctrl-C, and all processes that they start; some of
# them are about Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run side by side in processes; threads of their own would only be in each other's way.
torch.set_num_threads(1)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are named by their kind, not their content: a packed file holds the time at which it was made, and the
    processes that share the tests must give them the same names."""
    return "bytes" if isinstance(val, bytes) else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Says at the very end how many tests were left out for lack of a browser: among other lines it is overlooked."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum("browser tests need" in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(
            f"{count} tests of the report page in a browser were left out: `make browser` (as root, Debian and its kin) "
            "installs what they need, chromium and chromedriver",
            yellow=True,
        )


@pytest.fixture(params=["reference", "native"])
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test once on the pure-torch ops and once on the C++ kernels: it does not know which it tests."""
    if request.param == "native" and not ops.native_available():
        if os.environ.get("CI"):
            pytest.fail("the native kernels were not built")
        pytest.skip("the native kernels were not built")
    with ops.use(request.param):
        yield request.param


@pytest.fixture
def threads() -> Iterator[None]:
    """Puts torch's number of threads back after a test that changes it."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
