"""AlterConfigs and IncrementalAlterConfigs: each resource on its own, its settings all or none (KIP-133, KIP-339)."""

from __future__ import annotations

from collections import Counter
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
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import (
    AlterConfigsResponse,
    ClearElrRecord,
    ConfigRecord,
    IncrementalAlterConfigsResponse,
    Message,
)

MAX_VALUE_LENGTH: Final = 0x7FFF  # the longest string in a record
CORDONED: Final = "cordoned.log.dirs"
KEYS: Final[Mapping[int, Keys]] = {
    TOPIC: TOPIC_KEYS,
    BROKER: BROKER_KEYS,
    CLIENT_METRICS: CLIENT_METRICS_KEYS,
    GROUP: GROUP_KEYS,
}
_TYPED: Final = (TOPIC, BROKER)  # Apache Kafka's controller knows the list keys of these resources


class Change(NamedTuple):
    """A key and its new value; None removes it."""

    name: str
    value: str | None


class ConfigAlteration:
    """One request. `forwarded`: it came through a broker, which has checked what only a broker can."""

    def __init__(self, image: MetadataImage, settings: Settings, *, forwarded: bool) -> None:
        self._image, self._settings, self._forwarded = image, settings, forwarded
        self._records: list[Any] = []

    def incremental(self, request: Any) -> Decision:
        """Raises POLICY_VIOLATION for too many changes at once."""
        return self._decide(request, IncrementalAlterConfigsResponse, self._incremental_changes)

    def legacy(self, request: Any) -> Decision:
        """The request has all settings of a resource. Raises POLICY_VIOLATION for too many changes at once."""
        return self._decide(request, AlterConfigsResponse, self._legacy_changes)

    def _decide(self, request: Any, response: Any, changes_of: Callable[[Any], list[Change]]) -> Decision:
        counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
        results = []
        for resource in {(each.resource_type, each.resource_name): each for each in request.resources}.values():
            key = resource.resource_type, resource.resource_name
            result = response.AlterConfigsResourceResponse(
                resource_type=key[0], resource_name=key[1], error_message=None
            )
            try:
                if counts[key] > 1:
                    raise error_for(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
                if key[0] not in KEYS:
                    raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {key[0]}.")
                self._records += self._records_of(key, changes_of(resource))
            except KafkaError as error:
                result.error_code, result.error_message = error.code, str(error)
            results.append(result)
            limit_records(len(self._records))  # here too: nothing else is decided about a request that is refused
        if self._image.elr_enabled:
            # The minimum ISR decides which replicas are eligible, so a change clears the ELR (KIP-966).
            self._records += [_clear_elr(record) for record in self._records if record.name == MIN_IN_SYNC_REPLICAS]
        limit_records(len(self._records))
        return Decision([] if request.validate_only else self._records, response(responses=results))

    def _incremental_changes(self, resource: Any) -> list[Change]:
        key = resource.resource_type, resource.resource_name
        current, keys = self._image.config(*key), KEYS[key[0]]
        changes = {}
        # The last change of a key counts.
        for config in {each.name: each for each in resource.configs}.values():
            name, operation = config.name, config.config_operation
            if operation not in NAMES:
                raise error_for(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
            row = keys.get(name)
            is_list = row is not None and row.type == "list" and key[0] in _TYPED
            if operation in (APPEND, SUBTRACT) and not is_list:
                problem = f"Can't {NAMES[operation]} to key {name} because its type is not LIST."
                raise error_for(ErrorCode.INVALID_CONFIG, problem)
            value = changed(current.get(name), operation, config.value, None if row is None else row.default)
            changes[name] = Change(name, value)
        return list(changes.values())

    def _legacy_changes(self, resource: Any) -> list[Change]:
        current = self._image.config(resource.resource_type, resource.resource_name)
        changes = {config.name: Change(config.name, config.value) for config in resource.configs}
        return [
            *changes.values(),
            *[Change(name, None) for name in sorted(current) if name not in changes],
        ]

    def _records_of(self, key: ConfigKey, changes: list[Change]) -> list[Message]:
        """Raises KafkaError for settings that the resource may not have."""
        current = self._image.config(*key)
        # Broker settings are written also when equal: the broker then loads the files in them again (KAFKA-14136).
        changes = [each for each in changes if key[0] == BROKER or current.get(each.name) != each.value]
        values = {name: value for name, value in current.items() if value is not None}
        for change in changes:
            self._check_change(key, change, values.get(CORDONED))
        for name, value in changes:
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        check_resource(self._image, self._settings, key, values, {each.name for each in changes})
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
        """A controller does not know the paths of brokers. A direct request may only remove cordons (KIP-1066)."""
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


def _clear_elr(record: Any) -> Message:
    """Clears the ELR of one topic, or of all of them."""
    return ClearElrRecord(topic_name=record.resource_name if record.resource_type == TOPIC else "")
