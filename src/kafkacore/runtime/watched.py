"""Watches the asyncio tasks that a node needs. If such a task failed unnoticed, the node would keep running but be
useless."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def watch(task: asyncio.Task[Any], on_fault: Callable[[BaseException], None]) -> None:
    """Calls `on_fault` when the task ends with an error, but not when it returns or is cancelled."""

    def ended(done: asyncio.Task[Any]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            on_fault(error)

    task.add_done_callback(ended)
