"""The registered nodes: brokers and controllers, with their features and endpoints."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kafkacore.protocol.messages import RegisterBrokerRecord, RegisterControllerRecord
from kafkacore.protocol.uuid import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, Uuid


class Endpoint(NamedTuple):
    """An address of a node. `security_protocol` is Kafka's id; 0 is PLAINTEXT."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class VersionRange(NamedTuple):
    lowest: int
    highest: int


class BrokerRegistration(NamedTuple):
    """The registration of a broker: its last RegisterBrokerRecord, at `record_offset`, with the later changes
    applied."""

    broker_id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None = None
    is_migrating_zk_broker: bool = False
    record_offset: int = -1

    @property
    def active(self) -> bool:
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def has_uncordoned_directory(self) -> bool:
        return not self.directories or not set(self.directories).issubset(self.cordoned_directories or ())

    @property
    def default_directory(self) -> Uuid:
        """The directory that the controller assigns to a new replica on this broker. UNASSIGNED_DIRECTORY if the broker
        has several directories, because then the broker chooses. MIGRATING_DIRECTORY if the broker has registered no
        directories (KIP-858)."""
        if not self.directories:
            return MIGRATING_DIRECTORY
        return self.directories[0] if len(self.directories) == 1 else UNASSIGNED_DIRECTORY

    def has_online_directory(self, directory: Uuid) -> bool:
        """Returns whether a replica in this directory counts as online: the directory is not known yet
        (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY), or is a working directory of the broker.
        """
        if directory == LOST_DIRECTORY:
            return False
        return directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY) or directory in self.directories

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((each for each in self.endpoints if each.name == listener), None)

    def changed(self, change: Any) -> BrokerRegistration:
        """Returns the registration after a BrokerRegistrationChangeRecord. In this record, 1 sets a flag, and 0 leaves
        it unchanged. Only `fenced` can be cleared, by -1."""
        return self._replace(
            fenced=self.fenced if change.fenced == 0 else change.fenced > 0,
            in_controlled_shutdown=self.in_controlled_shutdown or change.in_controlled_shutdown > 0,
            directories=tuple(sorted(change.log_dirs)) if change.log_dirs else self.directories,
            cordoned_directories=self.cordoned_directories
            if change.cordoned_log_dirs is None
            else tuple(sorted(change.cordoned_log_dirs)),
        )

    def with_fenced(self, fenced: bool) -> BrokerRegistration:
        return self._replace(fenced=fenced)

    def to_record(self, record_version: int) -> Any:
        record = RegisterBrokerRecord(
            broker_id=self.broker_id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[RegisterBrokerRecord.BrokerEndpoint(**each._asdict()) for each in self.endpoints],
            features=_feature_list(RegisterBrokerRecord.BrokerFeature, self.features),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories),
        )
        if record_version >= 4 and self.cordoned_directories is not None:
            record.cordoned_log_dirs = list(self.cordoned_directories)
        return record


class ControllerRegistration(NamedTuple):
    """The registration of a controller (KIP-919)."""

    controller_id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]
    zk_migration_ready: bool = False

    def to_record(self) -> Any:
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=[RegisterControllerRecord.ControllerEndpoint(**each._asdict()) for each in self.endpoints],
            features=_feature_list(RegisterControllerRecord.ControllerFeature, self.features),
        )


def _feature_list(made: Any, features: Mapping[str, VersionRange]) -> list[Any]:
    return [
        made(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in sorted(features.items())
    ]


def endpoints_of(items: Collection[Any]) -> tuple[Endpoint, ...]:
    return tuple([Endpoint(each.name, each.host, each.port, each.security_protocol) for each in items])


def features_of(items: Collection[Any]) -> dict[str, VersionRange]:
    return {each.name: VersionRange(each.min_supported_version, each.max_supported_version) for each in items}


def broker_of(record: Any, offset: int) -> BrokerRegistration:
    """Makes a registration from a RegisterBrokerRecord at this offset."""
    return BrokerRegistration(
        broker_id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=endpoints_of(record.end_points),
        features=features_of(record.features),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(sorted(record.log_dirs)),
        cordoned_directories=None if record.cordoned_log_dirs is None else tuple(sorted(record.cordoned_log_dirs)),
        is_migrating_zk_broker=record.is_migrating_zk_broker,
        record_offset=offset,
    )


def controller_of(record: Any) -> ControllerRegistration:
    """Makes a registration from a RegisterControllerRecord."""
    return ControllerRegistration(
        controller_id=record.controller_id,
        incarnation_id=record.incarnation_id,
        endpoints=endpoints_of(record.end_points),
        features=features_of(record.features),
        zk_migration_ready=record.zk_migration_ready,
    )
