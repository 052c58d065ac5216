"""The controller's settings, and the interfaces through which it reaches the outside world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from kafkacore.controller.zookeeper.inter_broker_protocol import LATEST, InterBrokerProtocol
from kafkacore.protocol.uuid import Uuid
from kafkacore.zookeeper.operations import OPEN_ACL, Acl, Operation, Result, WatchEvent
from kafkacore.zookeeper.znodes import BrokerRegistration


class LiveBroker(NamedTuple):
    """A broker with a registration in `/brokers/ids`. `epoch` is the czxid of that znode. The epoch identifies the
    generation of the broker, and changes every time the broker joins the cluster (KIP-380)."""

    broker_id: int
    epoch: int
    registration: BrokerRegistration


@dataclass
class ControllerSettings:
    """The configuration. Each value has the unit of Kafka's configuration key. The owner can change a field while the
    controller runs."""

    broker_id: int
    inter_broker_listener: str = "PLAINTEXT"
    control_plane_listener: str | None = None  # KIP-291; None selects the inter-broker listener
    inter_broker_protocol: InterBrokerProtocol = LATEST
    delete_topic_enable: bool = True
    unclean_leader_election_enable: bool = False
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_seconds: int = 300
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    acl: Callable[[str], Sequence[Acl]] = lambda _path: OPEN_ACL  # the ACL of a new znode (zookeeper.set.acl)


class ZooKeeper(Protocol):
    """The part of `zookeeper.client` that the controller uses. `submit` does not raise for error codes of the server.
    If an operation returns CONNECTION_LOSS, its outcome is unknown."""

    @property
    def state(self) -> Any: ...

    @property
    def session_id(self) -> int: ...

    async def submit(self, operations: Sequence[Operation]) -> list[Result]: ...

    def on_watch(self, callback: Callable[[WatchEvent], None]) -> None: ...

    def on_state(self, callback: Callable[[Any, int], None]) -> None: ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Surroundings(Protocol):
    """The controller's interface to the broker that hosts it."""

    def send(self, broker: LiveBroker, listener: str, api_key: int, api_version: int, body: Any) -> Awaitable[Any]:
        """Sends one request to the broker's endpoint for `listener` and returns the response message. Raises OSError or
        KafkaError if there is no response. The caller sends one request at a time to each broker."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer: ...

    def now_ms(self) -> int:
        """Returns milliseconds since 1970, for the timestamp in `/controller`."""

    def new_topic_id(self) -> Uuid: ...

    async def register_broker(self) -> int:
        """Registers this broker in the new session and returns the broker epoch (czxid)."""
