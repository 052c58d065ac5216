"""A cluster for tests: one node today, with the interface of a cluster of several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from kafkacore.testing.broker import Broker


class Cluster:
    """`Cluster(brokers=1, ...)` with the arguments of Broker; `cluster.bootstrap`, `cluster[1]`, `with Cluster() as c`.

    Raises ValueError for more than one broker: this release runs single nodes.
    """

    def __init__(self, brokers: int = 1, **arguments: Any) -> None:
        if brokers != 1:
            raise ValueError(
                f"Cluster(brokers={brokers}): this release of kafkacore runs clusters of one broker, which is broker, "
                "controller and quorum in one; topics have one replica. Use Cluster() or Broker()"
            )
        broker = Broker(**arguments)
        self.brokers = {broker.node_id: broker}

    @property
    def bootstrap(self) -> str:
        """The bootstrap.servers for clients."""
        return ",".join(each.bootstrap for each in self)

    def __getitem__(self, node_id: int) -> Broker:
        return self.brokers[node_id]

    def __iter__(self) -> Iterator[Broker]:
        return iter(self.brokers.values())

    def __len__(self) -> int:
        return len(self.brokers)

    def close(self) -> None:
        """Ends every broker. Idempotent."""
        for each in self:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self:
            await each.aclose()
