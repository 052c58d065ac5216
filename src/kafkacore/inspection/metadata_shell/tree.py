"""The tree over a metadata image: `/image/topics/byName/NAME/PARTITION` and the like.

Names, order and text are the same as in Apache Kafka 4.3's metadata shell, with one difference. For a snapshot, Kafka's
`provenance` shows the position of the last record in the file. This tree shows the snapshot's end offset and epoch
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkacore._version import __version__
from kafkacore.config.listeners import SECURITY_PROTOCOLS
from kafkacore.inspection.metadata_shell.nodes import (
    Directory,
    Leaf,
    Node,
    described,
    field,
    fixed,
    java_time,
    plain,
)
from kafkacore.metadata.client_quotas import CLIENT_ID, IP, USER, Entity, client_quotas
from kafkacore.metadata.image import MetadataImage, Topic
from kafkacore.metadata.partitions import RECOVERING, Partition
from kafkacore.metadata.records import MetadataError
from kafkacore.metadata.registrations import BrokerRegistration, ControllerRegistration, Endpoint, VersionRange
from kafkacore.protocol.features import METADATA_VERSION
from kafkacore.protocol.uuid import Uuid

NO_COMMIT: Final = "unknown"  # Apache Kafka shows this for a build without a commit id

_ANY_LATER: Final = 0x7FFF
_RESOURCES: Final = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_ENTITIES: Final = {CLIENT_ID: "clientId", IP: "ip", USER: "user"}  # in the order in which a quota's name shows them
# The enumerations in an AccessControlEntryRecord. The index of a name is its number in the record.
_ACL_RESOURCES: Final = (
    "UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER",
)  # fmt: skip
_ACL_PATTERNS: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_ACL_OPERATIONS: Final = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
_ACL_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")


def root(image: MetadataImage) -> Directory:
    return fixed({"image": lambda: _image(image), "local": _local})


def _local() -> Directory:
    return fixed({"version": lambda: plain(__version__), "commitId": lambda: plain(NO_COMMIT)})


def _image(image: MetadataImage) -> Directory:
    return fixed({
        "acls": lambda: fixed({"byId": lambda: _kept(image, "AccessControlEntryRecord", _acl)}),
        "clientQuotas": lambda: _quotas(image),
        "cluster": lambda: _cluster(image),
        "configs": lambda: _configs(image),
        "delegationToken": lambda: _kept(image, "DelegationTokenRecord", _token),
        "features": lambda: _features(image),
        "producerIds": lambda: fixed({"nextProducerId": lambda: plain(_next_producer_id(image))}),
        "provenance": lambda: _provenance(image),
        "scram": lambda: _scram(image),
        "topics": lambda: _topics(image),
    })  # fmt: skip


def _provenance(image: MetadataImage) -> Leaf:
    return Leaf(
        f"offset {image.offset}, epoch {image.epoch}, time {java_time(image.timestamp_ms)}",
        {"offset": image.offset, "epoch": image.epoch, "timestampMs": image.timestamp_ms},
    )


# --- topics ----------------------------------------------------------------------------------------------------------


def _topics(image: MetadataImage) -> Directory:
    def by_name(name: str) -> Node | None:
        return _topic(image, image.topic(name))

    def by_id(name: str) -> Node | None:
        try:
            return _topic(image, image.topic_by_id(Uuid.parse(name)))
        except ValueError:
            return None

    return fixed({
        "byId": lambda: Directory(lambda: (str(topic.topic_id) for topic in image.topics()), by_id),
        "byName": lambda: Directory(lambda: (topic.name for topic in image.topics()), by_name),
    })  # fmt: skip


def _topic(image: MetadataImage, topic: Topic | None) -> Node | None:
    if topic is None:
        return None

    def names() -> list[str]:
        return ["name", "id", *[str(number) for number, row in enumerate(topic.partition_rows) if row >= 0]]

    def child(name: str) -> Node | None:
        if name == "name":
            return plain(topic.name)
        if name == "id":
            return plain(str(topic.topic_id))
        number = _number(name)
        partition = None if number is None else image.partition(topic, number)
        return None if partition is None else _partition(partition)

    return Directory(names, child)


def _partition(row: Partition) -> Leaf:
    return described("PartitionRegistration", {
        "replicas": field(row.replicas),
        "directories": field(row.directories),
        "isr": field(row.isr),
        "removingReplicas": field(row.removing),
        "addingReplicas": field(row.adding),
        "elr": field(row.elr),
        "lastKnownElr": field(row.last_known_elr),
        "leader": field(row.leader),
        "leaderRecoveryState": field("RECOVERING" if row.recovery_state == RECOVERING else "RECOVERED"),
        "leaderEpoch": field(row.leader_epoch),
        "partitionEpoch": field(row.partition_epoch),
    })  # fmt: skip


# --- nodes -----------------------------------------------------------------------------------------------------------


def _cluster(image: MetadataImage) -> Directory:
    return fixed({
        "brokers": lambda: _numbered(image.brokers, _broker),
        "controllers": lambda: _numbered(image.controllers, _controller),
    })  # fmt: skip


def _numbered(nodes: Mapping[int, Any], leaf: Callable[[Any], Leaf]) -> Directory:
    def child(name: str) -> Node | None:
        number = _number(name)
        return None if number is None or number not in nodes else leaf(nodes[number])

    return Directory(lambda: map(str, nodes), child)


def _broker(broker: BrokerRegistration) -> Leaf:
    return described("BrokerRegistration", {
        "id": field(broker.broker_id),
        "epoch": field(broker.epoch),
        "incarnationId": field(str(broker.incarnation_id)),
        "listeners": _listeners(broker.endpoints),
        "supportedFeatures": _supported(broker.features),
        "rack": ("Optional.empty" if broker.rack is None else f"Optional[{broker.rack}]", broker.rack),
        "fenced": field(broker.fenced),
        "inControlledShutdown": field(broker.in_controlled_shutdown),
        "isMigratingZkBroker": field(broker.is_migrating_zk_broker),
        "directories": field(broker.directories),
        "cordonedDirectories": field(broker.cordoned_directories),
    })  # fmt: skip


def _controller(controller: ControllerRegistration) -> Leaf:
    return described("ControllerRegistration", {
        "id": field(controller.controller_id),
        "incarnationId": field(str(controller.incarnation_id)),
        "zkMigrationReady": field(controller.zk_migration_ready),
        "listeners": _listeners(controller.endpoints),
        "supportedFeatures": _supported(controller.features),
    })  # fmt: skip


def _listeners(endpoints: tuple[Endpoint, ...]) -> tuple[str, Any]:
    shown = [
        {
            "listenerName": each.name,
            "securityProtocol": _named(SECURITY_PROTOCOLS, each.security_protocol),
            "host": each.host,
            "port": each.port,
        }
        for each in sorted(endpoints, key=lambda each: each.name)
    ]
    texts = [
        f"Endpoint(listenerName='{each['listenerName']}', securityProtocol={each['securityProtocol']}, "
        f"host='{each['host']}', port={each['port']})"
        for each in shown
    ]
    return f"[{', '.join(texts)}]", shown


def _supported(features: Mapping[str, VersionRange]) -> tuple[str, Any]:
    def text(levels: VersionRange) -> str:
        if levels.lowest == levels.highest:
            return str(levels.lowest)
        return f"{levels.lowest}+" if levels.highest == _ANY_LATER else f"{levels.lowest}-{levels.highest}"

    shown = {name: [*features[name]] for name in sorted(features)}
    return f"{{{', '.join(f'{name}: {text(features[name])}' for name in shown)}}}", shown


# --- settings --------------------------------------------------------------------------------------------------------


def _features(image: MetadataImage) -> Directory:
    prefix = "finalized_"

    def names() -> list[str]:
        return ["metadataVersion", *[prefix + name for name in image.features if name != METADATA_VERSION]]

    def child(name: str) -> Node | None:
        if name == "metadataVersion":
            return _metadata_version(image)
        return plain(image.features.get(name[len(prefix) :], 0)) if name.startswith(prefix) else None

    return Directory(names, child)


def _metadata_version(image: MetadataImage) -> Leaf:
    level = image.features.get(METADATA_VERSION)
    if level is None:
        return Leaf("Optional.empty", None)
    try:
        name = image.metadata_version.name
    except MetadataError:
        name = f"level {level}, which this release does not know"
    return Leaf(f"Optional[{name}]", name)


def _configs(image: MetadataImage) -> Directory:
    def of(name: str) -> Node | None:
        kind, _, resource = name.partition(":")
        number = next((number for number, known in _RESOURCES.items() if known == kind), None)
        values = None if number is None else image.configs.get((number, resource))
        return None if values is None else _values(values)

    def names() -> list[str]:
        return [_RESOURCES.get(number, "UNKNOWN") + (f":{name}" if name else "") for number, name in image.configs]

    return Directory(names, of)


def _values(values: Mapping[str, Any]) -> Directory:
    def child(name: str) -> Node | None:
        value = values.get(name)
        return None if value is None else plain(value)

    return Directory(lambda: [name for name, value in values.items() if value is not None], child)


def _quotas(image: MetadataImage) -> Directory:
    quotas = {_entity_name(entity): values for entity, values in client_quotas(image).items()}
    return fixed({name: lambda values=values: _values(values) for name, values in quotas.items()})  # type: ignore[misc]


def _entity_name(entity: Entity) -> str:
    """Returns `clientId(NAME)_user(NAME)`. A default entity has no name and no parentheses. Kafka's shell fails for a
    default entity."""
    held = dict(entity)
    return "_".join(_entity_part(shown, held[kind]) for kind, shown in _ENTITIES.items() if kind in held)


def _entity_part(kind: str, name: str | None) -> str:
    if name is None:
        return kind
    escaped = name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    return f"{kind}({escaped})"


# --- users, quotas and permissions -----------------------------------------------------------------------------------


def _scram(image: MetadataImage) -> Directory:
    def of(mechanism: int) -> Directory:
        return _kept(image, "UserScramCredentialRecord", _credential, lambda key: key[2] == mechanism)

    return fixed({name: lambda number=number: of(number) for number, name in _MECHANISMS.items()})  # type: ignore[misc]


def _credential(record: Any) -> Leaf:
    return described("ScramCredentialData", {
        "salt": field(record.salt.hex()),
        "storedKey": field(record.stored_key.hex()),
        "serverKey": field(record.server_key.hex()),
        "iterations": field(record.iterations),
    })  # fmt: skip


def _acl(record: Any) -> Leaf:
    return described("StandardAcl", {
        "resourceType": field(_named(_ACL_RESOURCES, record.resource_type)),
        "resourceName": field(record.resource_name),
        "patternType": field(_named(_ACL_PATTERNS, record.pattern_type)),
        "principal": field(record.principal),
        "host": field(record.host),
        "operation": field(_named(_ACL_OPERATIONS, record.operation)),
        "permissionType": field(_named(_ACL_PERMISSIONS, record.permission_type)),
    }, brackets="[]")  # fmt: skip


def _token(record: Any) -> Leaf:
    # The parentheses are at the same positions as in Kafka's own text.
    return Leaf(
        f"DelegationTokenDatatokenId={record.token_id}(owner={record.owner}(tokenRequester={record.requester}"
        f"(renewers={' '.join(record.renewers)}, issueTimestamp={record.issue_timestamp}, "
        f"maxTimestamp={record.max_timestamp}), expiryTimestamp={record.expiration_timestamp}",
        {
            "tokenId": record.token_id,
            "owner": record.owner,
            "tokenRequester": record.requester,
            "renewers": list(record.renewers),
            "issueTimestamp": record.issue_timestamp,
            "maxTimestamp": record.max_timestamp,
            "expiryTimestamp": record.expiration_timestamp,
        },
    )


def _kept(
    image: MetadataImage,
    kind: str,
    leaf: Callable[[Any], Leaf],
    chosen: Callable[[tuple[Any, ...]], bool] = lambda _: True,
) -> Directory:
    """Returns a directory with the records of one kind in the image. The part of a record's key after the kind is the
    record's name in the directory."""
    found = {str(key[1]): record for key, record in image.kept.items() if key[0] == kind and chosen(key)}
    return Directory(lambda: found, lambda name: leaf(found[name]) if name in found else None)


def _next_producer_id(image: MetadataImage) -> int:
    record = image.next_producer_id
    return -1 if record is None else int(record.next_producer_id)


def _named(names: tuple[str, ...] | list[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else "UNKNOWN"


def _number(name: str) -> int | None:
    return int(name) if name.isascii() and name.isdigit() else None
