"""The life cycle of a broker in its cluster: registration, heartbeats, fencing, controlled shutdown (KIP-631).

This state machine has no clock or socket. The registrar gets the next message and the time to send it from the state
machine, and passes the responses back. The states are the same as in Kafka's BrokerState.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafkacore.protocol.messages import BrokerHeartbeatRequest, BrokerRegistrationRequest
from kafkacore.protocol.uuid import Uuid

FIRST_RETRY_MS: Final = 100
# A broker that has requested a controlled shutdown sends heartbeats often, because its leaderships move in much less
# time than the heartbeat interval.
SHUTDOWN_POLL_MS: Final = 50
NONE: Final = 0


class BrokerState(enum.IntEnum):
    """The values of `kafka.server:type=KafkaServer,name=BrokerState`."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class AdvertisedListener(NamedTuple):
    """An endpoint in the form that registration records and Metadata use. `security_protocol` is Kafka's id (0 is
    PLAINTEXT)."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class BrokerLifecycle:
    """Makes the messages from this broker to its controller, and keeps the state that follows from the responses.
    Delays are in milliseconds."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        incarnation_id: Uuid,
        rack: str | None,
        listeners: Sequence[AdvertisedListener],
        log_dir_ids: Sequence[Uuid],
        features: Mapping[str, tuple[int, int]],
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        previous_broker_epoch: int = -1,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.incarnation_id = incarnation_id
        self.rack = rack
        self.listeners = listeners
        self.log_dir_ids = log_dir_ids
        self.features = features
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.session_timeout_ms = session_timeout_ms
        self.previous_broker_epoch = previous_broker_epoch
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.fenced = True
        self.registered = False
        self.ready_to_unfence = False
        self.failed_attempts = 0
        self.offline_log_dirs: dict[Uuid, bool] = {}  # by offline directory: whether the controller knows about it
        # The cordoned directories. None until the broker knows which ones are cordoned, and while metadata.version does
        # not support this (KIP-1066).
        self.cordoned_log_dirs: frozenset[Uuid] | None = None

    def start(self) -> None:
        self.state = BrokerState.STARTING

    def want_unfenced(self) -> None:
        """Makes the next heartbeat ask to unfence this broker. Call this when recovery is complete and the listeners
        are open."""
        self.ready_to_unfence = True

    def want_shutdown(self) -> bool:
        """Starts a controlled shutdown. Returns False if the broker has nothing to hand over: it was never unfenced, or
        is already shutting down."""
        if self.state is not BrokerState.RUNNING:
            return self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        return True

    def stop(self) -> None:
        self.state = BrokerState.SHUTTING_DOWN

    def log_dir_failed(self, directory: Uuid) -> None:
        self.offline_log_dirs.setdefault(directory, False)

    def registration(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[BrokerRegistrationRequest.Listener(**listener._asdict()) for listener in self.listeners],
            features=[
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=least, max_supported_version=most)
                for name, (least, most) in self.features.items()
            ],
            rack=self.rack,
            log_dirs=sorted(self.log_dir_ids, key=bytes),
            previous_broker_epoch=self.previous_broker_epoch,
        )

    def heartbeat(self, metadata_offset: int) -> BrokerHeartbeatRequest:
        """Returns the next heartbeat. `metadata_offset` is the offset of the last record that this broker has
        applied."""
        return BrokerHeartbeatRequest(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=metadata_offset,
            want_fence=not self.ready_to_unfence,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self.offline_log_dirs),
            cordoned_log_dirs=None if self.cordoned_log_dirs is None else sorted(self.cordoned_log_dirs, key=bytes),
        )

    def registration_answered(self, error_code: int, broker_epoch: int) -> int:
        """Handles the response to a registration. Returns the delay before the next message."""
        if error_code != NONE:
            return self.failed()
        self.failed_attempts = 0
        self.registered = True
        self.broker_epoch = broker_epoch
        return 0

    def heartbeat_answered(
        self, error_code: int, is_caught_up: bool, is_fenced: bool, should_shut_down: bool, told: Sequence[Uuid] = ()
    ) -> int:
        """Handles the response to a heartbeat. Returns the delay before the next message. `told` are the offline
        directories that the heartbeat reported."""
        if error_code != NONE:
            return self.failed()
        self.failed_attempts = 0
        self.fenced = is_fenced
        for directory in told:
            self.offline_log_dirs[directory] = True
        if self.state is BrokerState.STARTING and is_caught_up:
            self.state = BrokerState.RECOVERY
            return 0 if self.ready_to_unfence else self.heartbeat_interval_ms
        if self.state is BrokerState.RECOVERY and not is_fenced:
            self.state = BrokerState.RUNNING
        elif self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if should_shut_down:
                self.state = BrokerState.SHUTTING_DOWN
            return SHUTDOWN_POLL_MS
        return self.heartbeat_interval_ms

    def failed(self) -> int:
        """Notes that a message was lost or refused. Returns the delay before the next message."""
        delay_ms = min(FIRST_RETRY_MS << min(self.failed_attempts, 20), self.session_timeout_ms)
        self.failed_attempts += 1
        return delay_ms

    def must_register_again(self) -> None:
        """Makes the broker register again. Call this when the controller no longer knows this broker's epoch
        (STALE_BROKER_EPOCH, or the broker has moved to another quorum)."""
        self.registered = False
