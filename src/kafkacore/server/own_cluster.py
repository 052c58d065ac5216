"""Detects that this node is configured for the wrong cluster: every known controller refuses this node's cluster id.

Apache Kafka (KafkaRaftClient, handleUnexpectedError) logs INCONSISTENT_CLUSTER_ID and retries for ever. With Apache
Kafka, a node that was formatted with another cluster's id finds no leader. Its start then times out, and the error does
not contain the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import Message
from kafkacore.storage.errors import LogDirectoryError

Address = tuple[str, int]
MOST_ADDRESSES: Final = 64  # no cluster has this many controllers


class WrongClusterError(LogDirectoryError):
    """All controllers belong to another cluster than this node. The message says how to correct this."""


class Sender(Protocol):
    async def send(self, host: str, port: int, request: Message) -> Any: ...


class OwnCluster:
    """Sends the Raft driver's requests through its lane of connections, and checks the error of each response.

    `controllers` returns the addresses of all other controllers that this node knows. `where` is the file that contains
    `cluster_id`. If each of these controllers has refused the cluster id and none has ever accepted it, `on_wrong` is
    called once, with WrongClusterError.
    """

    def __init__(
        self,
        lane: Sender,
        cluster_id: str,
        where: str,
        controllers: Callable[[], Iterable[Address]],
        on_wrong: Callable[[WrongClusterError], None],
    ) -> None:
        self._lane, self._cluster_id, self._where = lane, cluster_id, where
        self._controllers, self._on_wrong = controllers, on_wrong
        self._refused: set[Address] = set()
        self._decided = False

    async def send(self, host: str, port: int, request: Message) -> Any:
        """Sends a request. Raises the same errors as Lane.send."""
        answer = await self._lane.send(host, port, request)
        if not self._decided and getattr(request, "cluster_id", None) is not None:
            self._look(answer.error_code, (host, port))
        return answer

    def _look(self, error_code: int, address: Address) -> None:
        if error_code == ErrorCode.NONE:
            self._decided = True
        elif error_code == ErrorCode.INCONSISTENT_CLUSTER_ID and len(self._refused) < MOST_ADDRESSES:
            self._refused.add(address)
            if self._refused.issuperset(self._controllers()):
                self._decided = True
                self._on_wrong(WrongClusterError(self._told()))

    def _told(self) -> str:
        they = ", ".join(f"{host}:{port}" for host, port in sorted(self._refused))
        return (
            f"{self._where}: this node has cluster.id={self._cluster_id}, and every controller that it asked refused "
            f"that with INCONSISTENT_CLUSTER_ID: {they}. Compare with their id (kafkacore cluster cluster-id "
            "--bootstrap-controller HOST:PORT). Then correct controller.quorum.bootstrap.servers or "
            "controller.quorum.voters, or log.dirs, or format empty directories with the id of their cluster"
        )
