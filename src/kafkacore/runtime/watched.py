"""Tasks without which a node would only seem to be alive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def watch(task: asyncio.Task[Any], on_fault: Callable[[BaseException], None]) -> None:
    """Calls `on_fault` when the task ends with an error; not when it returns or is cancelled."""

    def ended(done: asyncio.Task[Any]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            on_fault(error)

    task.add_done_callback(ended)
