"""Without a browser the suite says at its end what it left out; where nothing is optional, it fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from browser_helpers import leave_out

FILE = Path(__file__).with_name("test_report_browser.py")


def _without_browser(tmp_path: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "no_sideways_scrolling", str(FILE)]
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_XDIST_WORKER")}
    return subprocess.run(
        command, env={**kept, "PATH": str(tmp_path), **environment}, capture_output=True, text=True, timeout=300
    )


def test_what_was_left_out_is_the_last_thing_said(tmp_path: Path) -> None:
    done = _without_browser(tmp_path, {})
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.strip().splitlines()
    assert any(line.startswith("3 tests of the report page in a browser were left out: `make browser`") for line in said[-2:])


def test_where_nothing_is_optional_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="need a browser"):
        leave_out("need a browser")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="need a browser"):
        leave_out("need a browser")
