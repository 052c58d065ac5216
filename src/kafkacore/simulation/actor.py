"""A program on its own machine whose actions the seed decides."""

from __future__ import annotations

import asyncio

from kafkacore.simulation.cluster import SimulatedNodes


class Actor:
    """Works from `start` to `stop`. `name` is the name of its machine."""

    def __init__(self, cluster: SimulatedNodes, name: str) -> None:
        self._client = cluster.client(name)
        self._is_stopped = False
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = self._client.start(self._work())

    def check(self) -> None:
        """Raises the error that ended this program: a Violation that it noticed, or an answer that it could not
        read."""
        if self.task is not None and self.task.done():
            self.task.result()

    def stop(self) -> None:
        """Ends the program after its current operations."""
        self._is_stopped = True

    async def _work(self) -> None:
        raise NotImplementedError
