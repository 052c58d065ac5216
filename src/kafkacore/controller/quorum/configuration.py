"""AlterConfigs and IncrementalAlterConfigs. For each resource, either all changes are applied or none (KIP-133,
KIP-339)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kafkacore.config.changes import APPEND, NAMES, SUBTRACT, changed
from kafkacore.config.keys import BROKER as BROKER_KEYS
from kafkacore.config.keys import CLIENT_METRICS as CLIENT_METRICS_KEYS
from kafkacore.config.keys import GROUP as GROUP_KEYS
from kafkacore.config.keys import TOPIC as TOPIC_KEYS
from kafkacore.config.keys import Keys
from kafkacore.controller.quorum.config_rules import check_resource
from kafkacore.controller.quorum.decisions import MIN_IN_SYNC_REPLICAS, Decision, Settings, limit_records
from kafkacore.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, ConfigKey, MetadataImage
from kafkacore.metadata.partitions import CHUNK_ROWS
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import (
    AlterConfigsResponse,
    ClearElrRecord,
    ConfigRecord,
    IncrementalAlterConfigsResponse,
    Message,
    PartitionChangeRecord,
)
from kafkacore.runtime.slices import Work, counted

MAX_VALUE_LENGTH: Final = 0x7FFF  # the longest string in a record
CORDONED: Final = "cordoned.log.dirs"
KEYS: Final[Mapping[int, Keys]] = {
    TOPIC: TOPIC_KEYS,
    BROKER: BROKER_KEYS,
    CLIENT_METRICS: CLIENT_METRICS_KEYS,
    GROUP: GROUP_KEYS,
}
_TYPED: Final = (TOPIC, BROKER)  # resources for which Apache Kafka's controller knows which keys are lists


class Change(NamedTuple):
    """A key and its new value. The value None removes the key."""

    name: str
    value: str | None


ChangesOf = Callable[[Any], Work[list[Change]]]


class ConfigAlteration:
    """Handles one request. `forwarded` means that a broker has forwarded the request, after it made the checks that
    only a broker can make."""

    def __init__(self, image: MetadataImage, settings: Settings, *, forwarded: bool) -> None:
        self._image, self._settings, self._forwarded = image, settings, forwarded
        self._records: list[Any] = []

    def incremental(self, request: Any) -> Work[Decision]:
        """Handles IncrementalAlterConfigs. Raises POLICY_VIOLATION if the request makes too many changes."""
        return self._decide(request, IncrementalAlterConfigsResponse, self._incremental_changes)

    def legacy(self, request: Any) -> Work[Decision]:
        """Handles AlterConfigs, where the request contains all settings of a resource. Raises POLICY_VIOLATION if the
        request makes too many changes."""
        return self._decide(request, AlterConfigsResponse, self._legacy_changes)

    def _decide(self, request: Any, response: Any, changes_of: ChangesOf) -> Work[Decision]:
        counts = yield from counted((each.resource_type, each.resource_name) for each in request.resources)
        results, decided = [], set()
        for resource in request.resources:
            yield
            key = resource.resource_type, resource.resource_name
            if key in decided:
                continue
            decided.add(key)
            result = response.AlterConfigsResourceResponse(
                resource_type=key[0], resource_name=key[1], error_message=None
            )
            try:
                if counts[key] > 1:
                    raise error_for(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
                if key[0] not in KEYS:
                    raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {key[0]}.")
                changes = yield from changes_of(resource)
                self._records += yield from self._records_of(key, changes)
            except KafkaError as error:
                if error.code == ErrorCode.POLICY_VIOLATION:
                    raise  # too many changes: the whole request is refused
                result.error_code, result.error_message = error.code, str(error)
            results.append(result)
        if self._image.elr_enabled:
            # min.insync.replicas decides which replicas are eligible, so a change of it clears the ELR (KIP-966).
            cleared: list[Any] = []
            for record in self._records:
                yield
                former = self._image.config(record.resource_type, record.resource_name).get(record.name)
                if record.name == MIN_IN_SYNC_REPLICAS and record.value != former:
                    cleared.append(_clear_elr(record))
            self._records += cleared
            if cleared:
                self._records += yield from _kept_electable(self._image, {record.topic_name for record in cleared})
        limit_records(len(self._records))
        return Decision([] if request.validate_only else self._records, response(responses=results))

    def _incremental_changes(self, resource: Any) -> Work[list[Change]]:
        key = resource.resource_type, resource.resource_name
        current, keys = self._image.config(*key), KEYS[key[0]]
        asked, changes = {}, []
        for config in resource.configs:
            yield
            asked[config.name] = config  # if a key is changed twice, the last change counts
        for config in asked.values():
            yield
            name, operation = config.name, config.config_operation
            if operation not in NAMES:
                raise error_for(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
            row = keys.get(name)
            is_list = row is not None and row.type == "list" and key[0] in _TYPED
            if operation in (APPEND, SUBTRACT) and not is_list:
                problem = f"Can't {NAMES[operation]} to key {name} because its type is not LIST."
                raise error_for(ErrorCode.INVALID_CONFIG, problem)
            value = changed(current.get(name), operation, config.value, None if row is None else row.default)
            changes.append(Change(name, value))
        return changes

    def _legacy_changes(self, resource: Any) -> Work[list[Change]]:
        current = self._image.config(resource.resource_type, resource.resource_name)
        changes = {}
        for config in resource.configs:
            yield
            changes[config.name] = Change(config.name, config.value)
        return [
            *changes.values(),
            *[Change(name, None) for name in sorted(current) if name not in changes],
        ]

    def _records_of(self, key: ConfigKey, changes: list[Change]) -> Work[list[Message]]:
        """Returns the records of the changes. Raises KafkaError for settings that the resource cannot have, and
        POLICY_VIOLATION for too many changes."""
        current = self._image.config(*key)
        # An unchanged broker setting is written too. The record makes the broker reload the files, such as key stores,
        # to which its settings point (KAFKA-14136).
        changes = [each for each in changes if key[0] == BROKER or current.get(each.name) != each.value]
        yield
        # This check comes before the loop, so that a request with too many changes costs little.
        limit_records(len(self._records) + len(changes))
        values = {name: value for name, value in current.items() if value is not None}
        for change in changes:
            yield
            self._check_change(key, change, values.get(CORDONED))
        for name, value in changes:
            yield
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        check_resource(self._image, self._settings, key, values, {each.name for each in changes})
        yield
        return [
            ConfigRecord(resource_type=key[0], resource_name=key[1], name=name, value=value) for name, value in changes
        ]

    def _check_change(self, key: ConfigKey, change: Change, cordoned: str | None) -> None:
        kind, resource = key
        problem = None
        if kind == BROKER and change.name == MIN_IN_SYNC_REPLICAS and self._image.elr_enabled:
            if resource:
                problem = f"Broker-level {MIN_IN_SYNC_REPLICAS} cannot be altered while ELR is enabled."
            elif change.value is None:
                problem = f"Cluster-level {MIN_IN_SYNC_REPLICAS} cannot be removed while ELR is enabled."
        elif kind == BROKER and change.name == CORDONED:
            problem = self._cordoning_problem(change.value, cordoned)
        if problem is None and change.value is not None and len(change.value) > MAX_VALUE_LENGTH:
            problem = (
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_VALUE_LENGTH} bytes."
            )
        if problem is not None:
            raise error_for(ErrorCode.INVALID_CONFIG, problem)

    def _cordoning_problem(self, value: str | None, current: str | None) -> str | None:
        """Returns the reason why the cordoned directories cannot change, or None if they can. A controller cannot check
        the directories of brokers. So a request that a client sends directly to a controller can only remove cordons
        (KIP-1066)."""
        if not self._image.metadata_version.cordoned_log_dirs_supported:
            return f"The {CORDONED} configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
        if self._forwarded or value is None or not value.strip() or set(_paths(value)) <= set(_paths(current or "")):
            return None
        return (
            f"When updating {CORDONED} via controllers,  the new value must be a subset of the current configuration "
            "value."
        )


def _paths(text: str) -> list[str]:
    return [path.strip() for path in text.split(",")]


def _kept_electable(image: MetadataImage, cleared: set[str]) -> Work[list[Message]]:
    """Restores the ELR and the last known leader of each partition that has no ISR and whose topic is in `cleared`. The
    entry "" in `cleared` stands for all topics.

    The replicas in the ELR have every committed record. If the ELR stayed empty, only an unclean election could give
    the partition a leader. Apache Kafka does not restore the ELR.
    """
    kept: list[Message] = []
    for number, chunk in enumerate(image.partition_chunks):
        for index, rare in chunk.rare.items():
            yield
            if not rare.elr and not rare.last_known_elr:
                continue
            row = image.partition_at(number * CHUNK_ROWS + index)
            topic = image.topic_at(row.topic_row)
            if not row.isr and not cleared.isdisjoint(("", topic.name)):
                change = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=row.partition)
                change.eligible_leader_replicas = list(row.elr) if row.elr else None
                change.last_known_elr = list(row.last_known_elr) if row.last_known_elr else None
                kept.append(change)
    return kept


def _clear_elr(record: Any) -> Message:
    """Returns the record that clears the ELR of one topic, or of all topics."""
    return ClearElrRecord(topic_name=record.resource_name if record.resource_type == TOPIC else "")
