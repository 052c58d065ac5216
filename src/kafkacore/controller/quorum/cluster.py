"""The brokers and controllers of the cluster: registration, heartbeats, fencing, controlled shutdown, log directories
(KIP-631, KIP-858)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

from kafkacore.controller.quorum.decisions import Decision, Settings
from kafkacore.controller.quorum.leaders import NO_BROKERS, LeaderChanges
from kafkacore.controller.quorum.liveness import Liveness
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partition_records import Record
from kafkacore.metadata.partitions import NO_LEADER, rows_in_directories, rows_led_by, rows_with_elr, rows_with_isr
from kafkacore.metadata.registrations import BrokerRegistration
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.features import METADATA_VERSION
from kafkacore.protocol.messages import (
    BrokerHeartbeatResponse,
    BrokerRegistrationChangeRecord,
    BrokerRegistrationResponse,
    ControllerRegistrationResponse,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterBrokerResponse,
)
from kafkacore.protocol.uuid import Uuid

FENCE = 1
UNFENCE = -1
IN_CONTROLLED_SHUTDOWN = 1
CLEAN_SHUTDOWN_SINCE = 3  # first version of BrokerRegistration with the previous broker epoch (KIP-966)


class State(Enum):
    FENCED = 0
    UNFENCED = 1
    CONTROLLED_SHUTDOWN = 2
    SHUTDOWN_NOW = 3


def check_epoch(image: MetadataImage, broker_id: int, epoch: int) -> BrokerRegistration:
    """Returns the broker's registration. Raises STALE_BROKER_EPOCH unless the broker is registered with this epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise error_for(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != epoch:
        raise error_for(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
        )
    return broker


# --- registration ---


def register_broker(
    image: MetadataImage,
    settings: Settings,
    liveness: Liveness,
    request: Any,
    api_version: int,
    epoch: int,
    now_ms: int,
) -> Decision:
    """Registers a broker. A new incarnation gets `epoch`, which is the offset of the next record in the metadata
    log."""
    if request.cluster_id != settings.cluster_id:
        raise error_for(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {settings.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not same and liveness.has_session(request.broker_id, existing.epoch, now_ms):
        raise error_for(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once its session expires.",
        )
    if request.is_migrating_zk_broker:
        raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    _check_id(request.broker_id)
    _check_directories(image, request.broker_id, request.log_dirs)
    _check_features(image, request.features, "broker")
    record = _registration_record(request)
    records: list[Record] = []
    if existing is not None and same:
        record.fenced, record.in_controlled_shutdown = existing.fenced, existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    else:
        clean = (
            existing is not None
            and api_version >= CLEAN_SHUTDOWN_SINCE
            and request.previous_broker_epoch == existing.epoch
        )
        records += _after_shutdown(image, settings, request.broker_id, clean)
        record.broker_epoch = epoch
    records.append(record)
    # The registration record comes last. If the controller fails when only some of the records are committed, the
    # broker is not registered yet. It then registers with the next controller (KIP-966).
    return Decision(records, BrokerRegistrationResponse(broker_epoch=record.broker_epoch), atomic=False)


def _registration_record(request: Any) -> Any:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
        log_dirs=list(request.log_dirs),
    )


def _check_id(node_id: int) -> None:
    if node_id < 0:
        raise error_for(ErrorCode.INVALID_REGISTRATION, f"The id of a node must not be negative: {node_id}")


def _check_directories(image: MetadataImage, broker_id: int, directories: Sequence[Uuid]) -> None:
    if not directories:
        problem = "No directories specified in request"
    elif any(each.is_reserved for each in directories):
        problem = "Reserved directory ID in request"
    elif len(wanted := set(directories)) != len(directories):
        problem = "Duplicate directory ID in request"
    else:
        for other in image.brokers.values():
            shared = wanted.intersection(other.directories)
            if other.broker_id != broker_id and shared:
                problem = f"Broker {other.broker_id} is already registered with directory {min(shared)}"
                break
        else:
            return
    raise error_for(ErrorCode.INVALID_REGISTRATION, problem)


def _check_features(image: MetadataImage, offered: Sequence[Any], kind: str) -> None:
    """Checks that the node supports all features that the cluster has finalized."""
    ranges: Mapping[str, tuple[int, int]] = {
        each.name: (each.min_supported_version, each.max_supported_version) for each in offered
    }
    if METADATA_VERSION not in ranges:
        raise error_for(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'")
    for name in {**ranges, **image.features}:
        lowest, highest = ranges.get(name, (0, 0))
        level = image.features.get(name, 0)
        if not lowest <= level <= highest:
            raise error_for(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the {kind} does not support finalized version {level} of {name}. "
                f"The {kind} wants a version between {lowest} and {highest}, inclusive.",
            )


def _after_shutdown(image: MetadataImage, settings: Settings, broker_id: int, clean: bool) -> list[Record]:
    """Returns the partition changes that end the previous incarnation of a broker. If that incarnation did not shut
    down cleanly, its replicas may have lost acknowledged records."""
    chunks = image.partition_chunks
    if image.elr_enabled and not clean:
        rows = sorted({*rows_with_isr(chunks, broker_id), *rows_with_elr(chunks, broker_id)})
        return _led_anew(image, settings, rows, unclean={broker_id})
    return _led_anew(image, settings, rows_with_isr(chunks, broker_id), removed={broker_id})


def unregister_broker(image: MetadataImage, settings: Settings, request: Any) -> Decision:
    """Removes a broker that will not come back. The broker stays in the replica lists of its partitions. Raises
    BROKER_ID_NOT_REGISTERED."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise error_for(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
        )
    chunks = image.partition_chunks
    rows = sorted({*rows_with_isr(chunks, broker.broker_id), *rows_with_elr(chunks, broker.broker_id)})
    records = _led_anew(image, settings, rows, removed={broker.broker_id})
    records.append(UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch))
    return Decision(records, UnregisterBrokerResponse(), atomic=False)


def register_controller(image: MetadataImage, request: Any) -> Decision:
    """Registers a controller. Raises INVALID_REGISTRATION."""
    _check_id(request.controller_id)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )
    return Decision([record], ControllerRegistrationResponse())


# --- heartbeats ---


def heartbeat(image: MetadataImage, settings: Settings, liveness: Liveness, request: Any) -> Decision:
    """Decides the next state of a broker from the flags in its heartbeat and from its partitions."""
    broker = check_epoch(image, request.broker_id, request.broker_epoch)
    failed = set(broker.directories).intersection(request.offline_log_dirs)
    if failed:
        # A broker that is unfenced by this heartbeat must not lead from a directory that has failed.
        broker = broker._replace(directories=tuple([each for each in broker.directories if each not in failed]))
        image = image._replace(brokers={**image.brokers, broker.broker_id: broker})
    was = _state(broker)
    state = _next_state(image, liveness, broker, was, request)
    records: list[Record] = []
    if state is not was:
        if state is State.UNFENCED:
            records += _unfence(image, settings, broker)
        elif state is State.CONTROLLED_SHUTDOWN:
            records += _leave(image, settings, broker)
        elif not broker.fenced:
            records += fence(image, settings, broker)
    liveness.read_up_to(broker.broker_id, request.current_metadata_offset)
    records += _directories_offline(image, settings, broker, failed)
    records += _directories_cordoned(image, broker, request.cordoned_log_dirs)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.record_offset,
        is_fenced=state in (State.FENCED, State.SHUTDOWN_NOW),
        should_shut_down=state is State.SHUTDOWN_NOW,
    )
    return Decision(records, response, atomic=False)


def _state(broker: BrokerRegistration) -> State:
    if broker.fenced:
        return State.FENCED
    return State.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else State.UNFENCED


def _next_state(
    image: MetadataImage, liveness: Liveness, broker: BrokerRegistration, was: State, request: Any
) -> State:
    if was is State.FENCED:
        if request.want_shut_down:
            return State.SHUTDOWN_NOW
        caught_up = request.current_metadata_offset >= broker.record_offset
        return State.UNFENCED if caught_up and not request.want_fence else State.FENCED
    if was is State.UNFENCED:
        if request.want_fence:
            return State.SHUTDOWN_NOW if request.want_shut_down else State.FENCED
        if request.want_shut_down:
            return State.CONTROLLED_SHUTDOWN if _leads(image, broker) else State.SHUTDOWN_NOW
        return State.UNFENCED
    if not request.want_shut_down:
        # This incarnation has not requested a shutdown. Another node must have guessed the broker epoch, which is a log
        # offset.
        return State.FENCED if request.want_fence else State.UNFENCED
    return State.SHUTDOWN_NOW if may_leave(image, liveness, broker) else State.CONTROLLED_SHUTDOWN


def may_leave(image: MetadataImage, liveness: Liveness, broker: BrokerRegistration) -> bool:
    """Returns whether a broker in controlled shutdown may stop. It may stop if it leads no partition and the remaining
    brokers have read the records that make them leaders."""
    active = {each.broker_id for each in image.brokers.values() if each.active}
    return liveness.may_leave(broker.broker_id, active) and not _leads(image, broker)


def _leads(image: MetadataImage, broker: BrokerRegistration) -> bool:
    return next(rows_led_by(image.partition_chunks, broker.broker_id), None) is not None


def fence(image: MetadataImage, settings: Settings, *brokers: BrokerRegistration) -> list[Record]:
    """Returns the records that first remove the brokers from every ISR, and then fence the brokers."""
    removed = {broker.broker_id for broker in brokers}
    records = _led_anew(image, settings, rows_with_isr(image.partition_chunks, *removed), removed=removed)
    for broker in brokers:
        record = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE)
        records.append(record)
    return records


def _unfence(image: MetadataImage, settings: Settings, broker: BrokerRegistration) -> list[Record]:
    """Returns the records that unfence the broker. The records also make the broker the leader of each leaderless
    partition that it can lead. A broker in controlled shutdown needs a new registration record, because a change record
    cannot end the shutdown."""
    change: Record = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE
    )
    if broker.in_controlled_shutdown:
        version = image.metadata_version.record_version(RegisterBrokerRecord.NAME)
        change = broker._replace(fenced=False, in_controlled_shutdown=False).to_record(version)
    rows = list(rows_led_by(image.partition_chunks, NO_LEADER))
    return [change, *_led_anew(image, settings, rows, added={broker.broker_id})]


def _leave(image: MetadataImage, settings: Settings, broker: BrokerRegistration) -> list[Record]:
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
    )
    rows = rows_with_isr(image.partition_chunks, broker.broker_id)
    return [change, *_led_anew(image, settings, rows, removed={broker.broker_id})]


def _led_anew(
    image: MetadataImage,
    settings: Settings,
    rows: Sequence[int],
    *,
    removed: AbstractSet[int] = NO_BROKERS,
    added: AbstractSet[int] = NO_BROKERS,
    unclean: AbstractSet[int] = NO_BROKERS,
) -> list[Record]:
    """Returns the records of the elections and ISR changes that LeaderChanges decides for these partitions."""
    if not image.partition_chunks:
        return []
    return LeaderChanges(image, settings, removed=removed, added=added, unclean=unclean).records(rows)


def _directories_offline(
    image: MetadataImage, settings: Settings, broker: BrokerRegistration, failed: AbstractSet[Uuid]
) -> list[Record]:
    """Returns the records of the directories that have just failed. `broker` no longer lists these directories."""
    if not failed:
        return []
    rows = list(rows_in_directories(image.partition_chunks, broker.broker_id, failed))
    records = _led_anew(image, settings, rows, removed={broker.broker_id})
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch)
    change.log_dirs = list(broker.directories)
    return [*records, change]


def _directories_cordoned(
    image: MetadataImage, broker: BrokerRegistration, cordoned: Sequence[Uuid] | None
) -> list[Record]:
    """Returns the record that stores the cordoned directories of a broker, if they have changed. `cordoned` is None
    until the broker has read its cordons. Older levels of metadata.version cannot store them (KIP-1066)."""
    if cordoned is None or not image.metadata_version.cordoned_log_dirs_supported:
        return []
    if tuple(sorted(cordoned)) == (broker.cordoned_directories or ()):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
        )
    ]
