"""What the tests of trainers need. Helpers beside the tests can be imported by name."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))

from device_helpers import VARIANTS


def pytest_collection_modifyitems(items):
    if shutil.which("cc") is None or shutil.which("make") is None:
        for item in items:
            if "tests/device" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="trainers need a C compiler (cc) and make"))


@pytest.fixture(params=["float", "fixed"])
def numbers(request):
    return request.param


@pytest.fixture(params=VARIANTS)
def variant(request):
    return VARIANTS[request.param]
