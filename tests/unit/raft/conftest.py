"""Stories on a controller of a quorum of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import controllers


@pytest.fixture
def run() -> Callable[..., Any]:
    """Runs a story on a harness: `run(story, level=..., **properties)`."""
    return controllers.run
