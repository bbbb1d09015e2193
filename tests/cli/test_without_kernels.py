"""A package that was built without a compiler says so at its first import, and where one would look."""

import importlib.util
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import wirebound

SCRIPT = """
import wirebound
from wirebound_lab.cli import main
print("imported")
assert main(["info"]) == 0
assert main(["train", "--data", "digits", "--connectivity", "0.2", "--hidden", "8", "--epochs", "1", "--out", "run"]) == 0
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package as it is installed where no library could be built."""
    folder = tmp_path_factory.mktemp("without")
    source = Path(wirebound.__file__).parent
    shutil.copytree(source, folder / "wirebound", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return folder


def test_import_info_and_train_say_that_the_kernels_are_missing(copy, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    environment.pop("WIREBOUND_NATIVE", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RuntimeWarning: the native kernels of wirebound were not built") == 1
    for what in ("many times slower", "C++ compiler", "--no-cache-dir", "WIREBOUND_NATIVE=0"):
        assert what in done.stderr
    info, training = done.stdout.split("data digits")
    assert "pure torch, slower; the native kernels were not built" in info
    assert "kernels: pure torch, slower; the native kernels were not built" in training


@pytest.mark.parametrize("wanted", ["0", "1"])
def test_who_asked_for_plain_torch_is_not_told(copy, monkeypatch, wanted):
    monkeypatch.setenv("WIREBOUND_NATIVE", wanted)
    spec = importlib.util.spec_from_file_location("library_alone", copy / "wirebound" / "ops" / "library.py")
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert library.load() is None
        assert library.load() is None
    assert len(caught) == (wanted == "1")
    assert library.reason().startswith("are turned off" if wanted == "0" else "were not built")
