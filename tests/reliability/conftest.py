"""The tests here share a module; pytest's importlib mode puts no folder on the path."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))


@pytest.fixture
def tmp_path():
    """A folder in memory where there is one: hundreds of synced checkpoints would wait for the disk."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="wirebound-", dir=memory if os.access(memory, os.W_OK) else None)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
