"""Tests run on a controller whose quorum is a single node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import controllers


@pytest.fixture
def run() -> Callable[..., Any]:
    """Returns a function that runs a test on a harness: `run(story, level=..., **properties)`."""
    return controllers.run
