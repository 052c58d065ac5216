"""AlterClientQuotas: the quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kafkacore.controller.quorum.decisions import Decision, limit_records
from kafkacore.metadata.client_quotas import CLIENT_ID, IP, USER, Entity, entity_of, quota_of
from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import AlterClientQuotasResponse, ClientQuotaRecord, Message
from kafkacore.runtime.slices import Work, counted

_DOUBLE: Final = 0  # the value of `most` for a quota that is a double, which has no limit
_INT_MAX: Final = 0x7FFFFFFF
_LONG_MAX: Final = 0x7FFFFFFFFFFFFFFF
_FRACTION: Final = 1e-6
KINDS: Final = (USER, CLIENT_ID, IP)
Entry = AlterClientQuotasResponse.EntryData
EntityData = AlterClientQuotasResponse.EntityData


class Kind(NamedTuple):
    """The type of a quota. `most` is the largest value of an integer quota, or 0 if the quota is a double."""

    type_name: str
    most: int


_OF_CLIENTS: Final[Mapping[str, Kind]] = {
    "producer_byte_rate": Kind("LONG", _LONG_MAX),
    "consumer_byte_rate": Kind("LONG", _LONG_MAX),
    "request_percentage": Kind("DOUBLE", _DOUBLE),
    "controller_mutation_rate": Kind("DOUBLE", _DOUBLE),
}
_OF_ADDRESSES: Final[Mapping[str, Kind]] = {"connection_creation_rate": Kind("INT", _INT_MAX)}


def alter_client_quotas(image: MetadataImage, request: Any) -> Work[Decision]:
    """Alters the quotas of each entity separately. For one entity, either all changes are applied or none. Raises
    POLICY_VIOLATION if the request makes too many changes."""
    records: list[Message] = []
    results = []
    seen: set[Entity] = set()
    for entry in request.entries:
        yield
        result = Entry(error_message=None)
        kinds = set()
        for each in entry.entity:
            yield
            result.entity.append(EntityData(entity_type=each.entity_type, entity_name=each.entity_name))
            kinds.add(each.entity_type)
        try:
            if len(kinds) > len(KINDS) and (unknown := kinds.difference(KINDS)):
                raise error_for(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {min(unknown)}")
            entity = entity_of(entry.entity)
            if entity in seen:
                raise error_for(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(entity)}")
            seen.add(entity)
            records += yield from _records_of(image, entity, entry)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
        limit_records(len(records))
    return Decision([] if request.validate_only else records, AlterClientQuotasResponse(entries=results))


def _shown(entity: Entity) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)


def _records_of(image: MetadataImage, entity: Entity, entry: Any) -> Work[list[Message]]:
    counts = yield from counted(op.key for op in entry.ops)
    twice = next((key for key, count in counts.items() if count > 1), None)
    if twice is not None:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"Duplicate quota key {twice} not updating quota for this entity {_shown(entity)}",
        )
    allowed = _check_entity(entity, entry)
    records: list[Message] = []
    for op in entry.ops:
        yield
        data = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        if op.remove:
            if quota_of(image, entity, op.key) is not None:
                records.append(ClientQuotaRecord(entity=data, key=op.key, value=0.0, remove=True))
            continue
        _check_value(allowed, op.key, op.value)
        if quota_of(image, entity, op.key) != op.value:
            records.append(ClientQuotaRecord(entity=data, key=op.key, value=op.value, remove=False))
    return records


def _check_entity(entity: Entity, entry: Any) -> Mapping[str, Kind]:
    """Returns the quotas that the entity can have, or raises KafkaError."""
    kinds = {kind for kind, _ in entity}
    problem = None
    if not entity:
        problem = "Invalid empty client quota entity"
    elif len(kinds) != len(entry.entity):
        problem = "Invalid client quota entity, duplicate entity entry"
    for kind, name in entity:
        if kind not in KINDS:
            problem = problem or f"Unhandled client quota entity type: {kind}"
        elif name == "":
            problem = problem or f"Empty {kind} not supported"
    if problem is None and IP in kinds:
        if len(kinds) > 1:
            problem = "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        else:
            problem = _address_problem(entity[0][1])
    if problem is not None:
        raise error_for(ErrorCode.INVALID_REQUEST, problem)
    return _OF_ADDRESSES if IP in kinds else _OF_CLIENTS


def _address_problem(address: str | None) -> str | None:
    """Returns the reason to refuse an address, or None. Only IP addresses are accepted. Apache Kafka also resolves host
    names, but this controller must not wait for a DNS query."""
    try:
        if address is not None:
            ipaddress.ip_address(address)
    except ValueError:
        return f"{address} is not a valid IP address."
    return None


def _check_value(allowed: Mapping[str, Kind], key: str, value: float) -> None:
    kind = allowed.get(key)
    problem = None
    if kind is None:
        problem = f"Invalid configuration key {key}"
    elif not value > 0.0:
        problem = f"Quota {key} must be greater than 0"
    elif kind.most and value > kind.most:
        problem = f"Proposed value for {key} is too large for {'an INT' if kind.type_name == 'INT' else 'a LONG'}."
    elif kind.most and math.fmod(value, 1.0) > _FRACTION:
        problem = f"{key} cannot be a fractional value."
    if problem is not None:
        raise error_for(ErrorCode.INVALID_REQUEST, problem)
