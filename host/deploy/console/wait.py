"""Waits for what a server or a browser does."""

import time
from collections.abc import Callable

from selenium.common.exceptions import WebDriverException

LIMIT = 30  # seconds


def until(is_true: Callable[[], object], what: str, seen: Callable[[], str] = str, limit: float = LIMIT) -> object:
    """Waits, and gives the value. An element that a refresh replaces meanwhile is looked up again. `seen` is what an error shows."""
    end = time.monotonic() + limit
    while True:
        try:
            if value := is_true():
                return value
        except WebDriverException:
            pass
        assert time.monotonic() < end, f"{what}: not within {limit} s. {seen()}"
        time.sleep(0.1)
