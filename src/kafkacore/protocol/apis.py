"""The APIs: their keys, names and usable versions, the listeners that serve them, and the headers around each message.

All of this comes from `apis.tsv`, which is generated from the message tables and read at the first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from kafkacore._fast.base.errors import ProtocolError, UnsupportedVersionError
from kafkacore._fast.schema import tables
from kafkacore._fast.schema.headers import request_header
from kafkacore._fast.schema.message import Message, message_class
from kafkacore.protocol import messages


class ApiKey:
    """The number of each API."""

    PRODUCE: Final = 0
    FETCH: Final = 1
    LIST_OFFSETS: Final = 2
    METADATA: Final = 3
    LEADER_AND_ISR: Final = 4
    STOP_REPLICA: Final = 5
    UPDATE_METADATA: Final = 6
    CONTROLLED_SHUTDOWN: Final = 7
    OFFSET_COMMIT: Final = 8
    OFFSET_FETCH: Final = 9
    FIND_COORDINATOR: Final = 10
    JOIN_GROUP: Final = 11
    HEARTBEAT: Final = 12
    LEAVE_GROUP: Final = 13
    SYNC_GROUP: Final = 14
    DESCRIBE_GROUPS: Final = 15
    LIST_GROUPS: Final = 16
    SASL_HANDSHAKE: Final = 17
    API_VERSIONS: Final = 18
    CREATE_TOPICS: Final = 19
    DELETE_TOPICS: Final = 20
    DELETE_RECORDS: Final = 21
    INIT_PRODUCER_ID: Final = 22
    OFFSET_FOR_LEADER_EPOCH: Final = 23
    ADD_PARTITIONS_TO_TXN: Final = 24
    ADD_OFFSETS_TO_TXN: Final = 25
    END_TXN: Final = 26
    WRITE_TXN_MARKERS: Final = 27
    TXN_OFFSET_COMMIT: Final = 28
    DESCRIBE_ACLS: Final = 29
    CREATE_ACLS: Final = 30
    DELETE_ACLS: Final = 31
    DESCRIBE_CONFIGS: Final = 32
    ALTER_CONFIGS: Final = 33
    ALTER_REPLICA_LOG_DIRS: Final = 34
    DESCRIBE_LOG_DIRS: Final = 35
    SASL_AUTHENTICATE: Final = 36
    CREATE_PARTITIONS: Final = 37
    CREATE_DELEGATION_TOKEN: Final = 38
    RENEW_DELEGATION_TOKEN: Final = 39
    EXPIRE_DELEGATION_TOKEN: Final = 40
    DESCRIBE_DELEGATION_TOKEN: Final = 41
    DELETE_GROUPS: Final = 42
    ELECT_LEADERS: Final = 43
    INCREMENTAL_ALTER_CONFIGS: Final = 44
    ALTER_PARTITION_REASSIGNMENTS: Final = 45
    LIST_PARTITION_REASSIGNMENTS: Final = 46
    OFFSET_DELETE: Final = 47
    DESCRIBE_CLIENT_QUOTAS: Final = 48
    ALTER_CLIENT_QUOTAS: Final = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
    ALTER_USER_SCRAM_CREDENTIALS: Final = 51
    VOTE: Final = 52
    BEGIN_QUORUM_EPOCH: Final = 53
    END_QUORUM_EPOCH: Final = 54
    DESCRIBE_QUORUM: Final = 55
    ALTER_PARTITION: Final = 56
    UPDATE_FEATURES: Final = 57
    ENVELOPE: Final = 58
    FETCH_SNAPSHOT: Final = 59
    DESCRIBE_CLUSTER: Final = 60
    DESCRIBE_PRODUCERS: Final = 61
    BROKER_REGISTRATION: Final = 62
    BROKER_HEARTBEAT: Final = 63
    UNREGISTER_BROKER: Final = 64
    DESCRIBE_TRANSACTIONS: Final = 65
    LIST_TRANSACTIONS: Final = 66
    ALLOCATE_PRODUCER_IDS: Final = 67
    CONSUMER_GROUP_HEARTBEAT: Final = 68
    CONSUMER_GROUP_DESCRIBE: Final = 69
    CONTROLLER_REGISTRATION: Final = 70
    GET_TELEMETRY_SUBSCRIPTIONS: Final = 71
    PUSH_TELEMETRY: Final = 72
    ASSIGN_REPLICAS_TO_DIRS: Final = 73
    LIST_CONFIG_RESOURCES: Final = 74
    DESCRIBE_TOPIC_PARTITIONS: Final = 75
    SHARE_GROUP_HEARTBEAT: Final = 76
    SHARE_GROUP_DESCRIBE: Final = 77
    SHARE_FETCH: Final = 78
    SHARE_ACKNOWLEDGE: Final = 79
    ADD_RAFT_VOTER: Final = 80
    REMOVE_RAFT_VOTER: Final = 81
    UPDATE_RAFT_VOTER: Final = 82
    INITIALIZE_SHARE_GROUP_STATE: Final = 83
    READ_SHARE_GROUP_STATE: Final = 84
    WRITE_SHARE_GROUP_STATE: Final = 85
    DELETE_SHARE_GROUP_STATE: Final = 86
    READ_SHARE_GROUP_STATE_SUMMARY: Final = 87
    STREAMS_GROUP_HEARTBEAT: Final = 88
    STREAMS_GROUP_DESCRIBE: Final = 89
    DESCRIBE_SHARE_GROUP_OFFSETS: Final = 90
    ALTER_SHARE_GROUP_OFFSETS: Final = 91
    DELETE_SHARE_GROUP_OFFSETS: Final = 92


class Api(NamedTuple):
    """One API in one release. Its stable versions are `lowest` to `highest`. An unstable latest version is not
    included."""

    key: int
    name: str  # such as CREATE_TOPICS
    message: str  # such as CreateTopics; the messages are CreateTopicsRequest and CreateTopicsResponse
    lowest: int
    highest: int
    flexible: int  # the first flexible version of the request
    flexible_response: int
    listeners: tuple[str, ...]  # "broker", "controller", and in 3.9 "zkBroker"

    def supports(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def request_header_version(self, version: int) -> int:
        # Version 0 of ControlledShutdown has a header without a client id.
        if self.key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if version >= self.flexible else 1

    def response_header_version(self, version: int) -> int:
        # A client that requests a version unknown to this release must still be able to read the answer (KIP-511).
        if self.key == ApiKey.API_VERSIONS:
            return 0
        return 1 if version >= self.flexible_response else 0


class ApiRange(NamedTuple):
    """An API and its versions, as ApiVersions lists them."""

    api_key: int
    min_version: int
    max_version: int


# The lowest and the highest version of each API that another node supports, by key.
NodeVersions = Mapping[int, tuple[int, int]]


class RequestHeader(NamedTuple):
    """The start of a request. Its body begins after the first `size` bytes of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    header_version: int
    size: int


# Clients up to librdkafka 2.11 compress batches only if version 0 of Produce is advertised. A request below the lowest
# version in the tables gets UNSUPPORTED_VERSION (KAFKA-18659).
ADVERTISED_FLOORS: Final = {ApiKey.PRODUCE: 0}

# A KRaft broker passes the requests of these APIs to the active controller, in an envelope (KIP-590).
FORWARDABLE: Final = frozenset({
    ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.ALTER_CONFIGS, ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
})  # fmt: skip


@cache
def apis() -> dict[int, Api]:
    """Returns every API by key, as in 4.3, or as in 3.9 if 4.x has removed it."""
    return former_apis() | current_apis()


@cache
def current_apis() -> dict[int, Api]:
    """Returns every API as in 4.3."""
    return _release(tables.CURRENT)


@cache
def former_apis() -> dict[int, Api]:
    """Returns every API in its 3.9 form, for a node in ZooKeeper mode."""
    return _release(tables.FORMER)


@cache
def zookeeper_apis() -> dict[int, Api]:
    """Returns every API of a broker in ZooKeeper mode. An API has the versions that both 3.9 and this release serve,
    because 4.x has removed the oldest versions of some APIs. An API that 4.x has removed completely has all
    versions of 3.9."""
    served = {}
    for key, former in former_apis().items():
        current = current_apis().get(key)
        if "zkBroker" in former.listeners:
            dropped = former.lowest if current is None else max(former.lowest, current.lowest)
            served[key] = former._replace(lowest=former.lowest if key in _WHOLE else dropped)
    return served


# The handlers of these APIs accept every version of 3.9.
_WHOLE: Final = frozenset({ApiKey.ALTER_PARTITION})


def apis_of(listener: str) -> dict[int, Api]:
    """Returns the APIs of a kind of listener: "broker", "controller" or "zkBroker"."""
    return zookeeper_apis() if listener == "zkBroker" else apis()


def api(key: int) -> Api:
    """Returns the API with this key. Raises ProtocolError for a key that no release has. Kafka closes the connection of
    such a request."""
    try:
        return apis()[key]
    except KeyError:
        raise ProtocolError(f"there is no API {key}") from None


def request_class(key: int) -> Any:
    return message_class(api(key).message + "Request")


def response_class(key: int) -> Any:
    return message_class(api(key).message + "Response")


def api_versions_for(listener: str, implemented_keys: set[int] | frozenset[int] | None = None) -> list[ApiRange]:
    """Returns the stable versions that a listener ("broker", "controller" or "zkBroker") advertises, by key. With
    `implemented_keys`, returns only these APIs."""
    known = zookeeper_apis() if listener == "zkBroker" else current_apis()
    return [
        ApiRange(each.key, ADVERTISED_FLOORS.get(each.key, each.lowest), each.highest)
        for key, each in sorted(known.items())
        if listener in each.listeners and (implemented_keys is None or key in implemented_keys)
    ]


def with_controller(ranges: Sequence[ApiRange], controller: NodeVersions | None) -> list[ApiRange]:
    """Returns the versions that a broker advertises. `ranges` contains the broker's own versions, and `controller` the
    versions that the active controller supports. For an API that the broker forwards, it advertises only the versions
    that both nodes support. If `controller` is None, returns `ranges`."""
    if controller is None:
        return list(ranges)
    common = [_common(each, controller) if each.api_key in FORWARDABLE else each for each in ranges]
    return [each for each in common if each.min_version <= each.max_version]


def _common(own: ApiRange, others: NodeVersions) -> ApiRange:
    """Returns the versions of an API that both nodes support. The range is empty if no version is common to both."""
    lowest, highest = others.get(own.api_key, (0, -1))
    return ApiRange(own.api_key, max(own.min_version, lowest), min(own.max_version, highest))


def decode_request_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """Decodes the header of a frame (without its size). An API version that is too new is not an error here, because
    the caller must answer such a request.

    Raises ProtocolError for an unknown API and for a header that does not fit the frame.
    """
    found = request_header(frame)
    if found is None:
        api(int.from_bytes(frame[:2], "big", signed=True))  # raises ProtocolError if there is no such API
        raise ProtocolError(f"RequestHeader: {len(frame)} bytes are too few")
    key, version, correlation_id, client_id, size = found
    try:
        client = None if client_id is None else client_id.decode()
    except UnicodeDecodeError:
        raise ProtocolError("RequestHeader.client_id: not UTF-8") from None
    return RequestHeader(key, version, correlation_id, client, api(key).request_header_version(version), size)


def decode_request(header: RequestHeader, frame: bytes | bytearray | memoryview) -> Any:
    """Decodes the body of a frame.

    Raises UnsupportedVersionError for a version that is not stable, and ProtocolError for malformed bytes.
    """
    known = api(header.api_key)
    if not known.supports(header.api_version):
        raise UnsupportedVersionError(
            f"{known.name} {header.api_version} is not supported; versions {known.lowest} to {known.highest} are"
        )
    return message_class(known.message + "Request").decode(memoryview(frame)[header.size :], header.api_version)


def encode_request(version: int, correlation_id: int, client_id: str | None, body: Message) -> bytes:
    """Returns a request's frame without its size. `body` determines the API."""
    return body.encode(version, request_prefix(body.API_KEY, version, correlation_id, client_id))


def request_prefix(key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Returns the bytes before a request's body."""
    known = api(key)
    header = messages.RequestHeader(
        request_api_key=known.key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    header_version = known.request_header_version(version)
    # This version of the header has no client id, and no receiver needs one.
    if header_version == 0:
        header.client_id = ""
    made: bytes = header.encode(header_version)
    return made


def encode_response(key: int, version: int, correlation_id: int, body: Message) -> bytes:
    """Returns a response's frame without its size."""
    return body.encode(version, response_header(key, version, correlation_id))


def response_header(key: int, version: int, correlation_id: int) -> bytes:
    """Returns the bytes before a response's body."""
    tags = _RESPONSE_TAGS.get((key, version))
    if tags is None:
        tags = _RESPONSE_TAGS[key, version] = b"\0" if api(key).response_header_version(version) else b""
    return correlation_id.to_bytes(4, "big", signed=True) + tags


# An empty list of tagged fields, for header versions that have tagged fields.
_RESPONSE_TAGS: Final[dict[tuple[int, int], bytes]] = {}


def _release(release: str) -> dict[int, Api]:
    names = {key: name for name, key in vars(ApiKey).items() if name.isupper()}
    return {
        row.key: Api(
            key=row.key,
            name=names[row.key],
            message=row.message,
            lowest=row.lowest,
            highest=row.highest,
            flexible=row.flexible,
            flexible_response=row.flexible_response,
            listeners=tuple(row.listeners.split(",")) if row.listeners else (),
        )
        for row in tables.apis(release)
        if row.lowest <= row.highest
    }
