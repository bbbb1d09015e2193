"""How the browser tests open a page, find things in it and press keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest


def show(browser: Any, page: Path, width: int, scheme: str = "light") -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [feature]})
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def press(browser: Any, element: Any, *keys: str) -> None:
    browser.execute_script("arguments[0].focus()", element)
    browser.switch_to.active_element.send_keys(*keys)


def leave_out(reason: str) -> NoReturn:
    """Skip the test; where nothing is optional, it fails."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
