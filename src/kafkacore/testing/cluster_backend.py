"""The environment of a `Cluster`: starts and stops its nodes, lets time pass, and carries requests to them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from kafkacore.server.node import Node
from kafkacore.testing.client import Client

T = TypeVar("T")


class ClusterBackend(Protocol):
    """The nodes of a cluster, by id. All calls come from the test's thread."""

    @property
    def roles(self) -> Mapping[int, tuple[str, ...]]: ...

    def bootstrap(self, node_id: int) -> str: ...

    def state(self, node_id: int) -> str: ...

    def server(self, node_id: int) -> Node | None: ...

    def failure(self, node_id: int) -> BaseException | None: ...

    def start(self, node_ids: list[int]) -> None:
        """Starts nodes at the same time. If a start fails, raises the error or stores it in `failure`."""

    def stop(self, node_id: int) -> None: ...

    def kill(self, node_id: int) -> None: ...

    def pause(self, node_id: int) -> None: ...

    def resume(self, node_id: int) -> None: ...

    def cut(self, source: int, target: int) -> None: ...

    def heal(self) -> None: ...

    def slow_disk(self, node_id: int, ms: float) -> None: ...

    def passes(self, source: int, target: int) -> bool:
        """Returns whether the link is open in this direction."""

    def wait_until(self, condition: Callable[[], T], limit_s: float) -> T | None: ...

    def run_for(self, seconds: float) -> None: ...

    def now_ms(self) -> int: ...

    def ask(self, node_id: int, request: Any, version: int | None, limit_s: float) -> Any: ...

    def run(self, node_id: int, work: Callable[[Client], Coroutine[Any, Any, T]], limit_s: float) -> T:
        """Runs `work` with a client of a node, and returns its result."""

    def close(self) -> None: ...
