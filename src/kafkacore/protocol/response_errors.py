"""The table in this module says where the response of each API contains errors. Functions use the table to make error
responses and to read errors.

A response has an error code at its top level, unless the table says otherwise. The table lists the items of a response
that have their own codes: topics, partitions, resources and groups.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import Message

NEVER: Final = 0x7FFF  # a version number that means "never"
# The `Items.field` of items that the request groups in a list (`Items.asked`), but the response does not.
FLAT: Final = ""
# Takes the place of the name of a request's field in `Items.copied`: the item in the request is the value to copy.
ITSELF: Final = ""
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Items(NamedTuple):
    """A list in a response. An error response contains one item for each item in the request's list `asked`."""

    field: str
    struct: str = ""
    asked: str = ""  # if empty, an error response contains none of these items
    copied: Mapping[str, str] = _NOTHING  # fields to copy: name in the response -> name in the request
    code: str = "error_code"  # if empty, the codes are in the items inside this one
    message_since: int = NEVER
    constant: Mapping[str, Any] = _NOTHING
    # A field of the request's items; the response has one item for each distinct value of this field.
    distinct: str = ""
    inside: tuple[Items, ...] = ()
    lowest: int = 0
    highest: int = NEVER


class Errors(NamedTuple):
    """The places of errors in a response. The versions `top_lowest` to `top_highest` have an error code at the top
    level. `constant` contains fields that every error response sets."""

    top_lowest: int = 0
    top_highest: int = NEVER
    message_since: int = 0
    constant: Mapping[str, Any] = _NOTHING
    null_since: Mapping[str, int] = _NOTHING  # fields at the top level, and the version from which on they are null
    items: tuple[Items, ...] = ()
    either: bool = False  # whether an error is either at the top level or at the items, but not at both


def _named(*fields: str) -> Mapping[str, str]:
    return MappingProxyType({field: field for field in fields})


def _partitions(field: str, struct: str, asked: str, index: str = "partition_index", **more: Any) -> Items:
    return Items(field, struct, asked, {index: index}, **more)


def _indexes(field: str, struct: str, asked: str, index: str = "partition_index", **more: Any) -> Items:
    return Items(field, struct, asked, {index: ITSELF}, **more)


def _described_groups(asked: str) -> Errors:
    return Errors(items=(Items("groups", "DescribedGroup", asked, {"group_id": ITSELF}, message_since=0),))


def _share_state(name: str) -> Errors:
    inside = _partitions("partitions", "PartitionResult", "partitions", "partition", message_since=0)
    return Errors(items=(Items("results", f"{name}Result", "topics", _named("topic_id"), code="", inside=(inside,)),))


def _quorum(**more: Any) -> Errors:
    return Errors(items=(Items("topics", code="", inside=(Items("partitions"),)),), **more)


_RESOURCE: Final = _named("resource_type", "resource_name")
_ALTERED: Final = Errors(
    items=(Items("responses", "AlterConfigsResourceResponse", "resources", _RESOURCE, message_since=0),)
)
_TXN_PARTITIONS: Final = Items(
    "results_by_partition", "AddPartitionsToTxnPartitionResult", "partitions", {"partition_index": ITSELF},
    code="partition_error_code",
)  # fmt: skip

_TABLE: Final[Mapping[int, Errors]] = {
    ApiKey.PRODUCE: Errors(items=(
        Items("responses", "TopicProduceResponse", "topic_data", _named("name", "topic_id"), code="", inside=(
            Items("partition_responses", "PartitionProduceResponse", "partition_data", _named("index"),
                  message_since=8, constant={"base_offset": -1}),
        )),
    )),
    ApiKey.FETCH: Errors(top_lowest=7, either=True, items=(
        Items("responses", "FetchableTopicResponse", "topics", _named("topic", "topic_id"), code="", inside=(
            Items("partitions", "PartitionData", "partitions", {"partition_index": "partition"},
                  constant={"high_watermark": -1, "records": b""}),
        )),
    )),
    ApiKey.LIST_OFFSETS: Errors(items=(
        Items("topics", "ListOffsetsTopicResponse", "topics", _named("name"), code="", inside=(
            _partitions("partitions", "ListOffsetsPartitionResponse", "partitions"),
        )),
    )),
    ApiKey.METADATA: Errors(top_lowest=13, items=(
        Items("topics", "MetadataResponseTopic", "topics", _named("name", "topic_id"), inside=(Items("partitions"),)),
    )),
    ApiKey.OFFSET_COMMIT: Errors(items=(
        Items("topics", "OffsetCommitResponseTopic", "topics", _named("name", "topic_id"), code="", inside=(
            _partitions("partitions", "OffsetCommitResponsePartition", "partitions"),
        )),
    )),
    ApiKey.OFFSET_FETCH: Errors(top_lowest=2, top_highest=7, items=(
        Items("groups", "OffsetFetchResponseGroup", "groups", _named("group_id"), lowest=8, inside=(
            Items("topics", code="", inside=(Items("partitions"),)),
        )),
        Items("topics", "OffsetFetchResponseTopic", "topics", _named("name"), code="", highest=1, inside=(
            _indexes("partitions", "OffsetFetchResponsePartition", "partition_indexes",
                     constant={"committed_offset": -1, "metadata": ""}),
        )),
        Items("topics", code="", lowest=2, highest=7, inside=(Items("partitions"),)),
    )),
    ApiKey.FIND_COORDINATOR: Errors(top_highest=3, message_since=1, constant={"node_id": -1, "port": -1}, items=(
        Items("coordinators", "Coordinator", "coordinator_keys", {"key": ITSELF}, lowest=4, message_since=4,
              constant={"node_id": -1, "port": -1}),
    )),
    ApiKey.JOIN_GROUP: Errors(null_since={"protocol_name": 7}),
    ApiKey.LEAVE_GROUP: Errors(items=(Items("members", lowest=3),)),
    ApiKey.DESCRIBE_GROUPS: Errors(items=(
        Items("groups", "DescribedGroup", "groups", {"group_id": ITSELF}, message_since=6),
    )),
    ApiKey.CREATE_TOPICS: Errors(items=(
        Items("topics", "CreatableTopicResult", "topics", _named("name"), message_since=1),
    )),
    ApiKey.DELETE_TOPICS: Errors(items=(
        Items("responses", "DeletableTopicResult", "topics", _named("name", "topic_id"), lowest=6, message_since=5),
        Items("responses", "DeletableTopicResult", "topic_names", {"name": ITSELF}, highest=5, message_since=5),
    )),
    ApiKey.DELETE_RECORDS: Errors(items=(
        Items("topics", "DeleteRecordsTopicResult", "topics", _named("name"), code="", inside=(
            _partitions("partitions", "DeleteRecordsPartitionResult", "partitions", constant={"low_watermark": -1}),
        )),
    )),
    ApiKey.INIT_PRODUCER_ID: Errors(constant={"producer_id": -1, "producer_epoch": -1}),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Errors(items=(
        Items("topics", "OffsetForLeaderTopicResult", "topics", _named("topic"), code="", inside=(
            _partitions("partitions", "EpochEndOffset", "partitions", "partition"),
        )),
    )),
    ApiKey.ADD_PARTITIONS_TO_TXN: Errors(top_lowest=4, items=(
        Items("results_by_topic_v3_and_below", "AddPartitionsToTxnTopicResult", "v3_and_below_topics", _named("name"),
              code="", highest=3, inside=(_TXN_PARTITIONS,)),
        Items("results_by_transaction", code="", lowest=4, inside=(
            Items("topic_results", code="", inside=(_TXN_PARTITIONS,)),
        )),
    )),
    ApiKey.WRITE_TXN_MARKERS: Errors(items=(
        Items("markers", "WritableTxnMarkerResult", "markers", _named("producer_id"), code="", inside=(
            Items("topics", "WritableTxnMarkerTopicResult", "topics", _named("name"), code="", inside=(
                _indexes("partitions", "WritableTxnMarkerPartitionResult", "partition_indexes"),
            )),
        )),
    )),
    ApiKey.TXN_OFFSET_COMMIT: Errors(items=(
        Items("topics", "TxnOffsetCommitResponseTopic", "topics", _named("name"), code="", inside=(
            _partitions("partitions", "TxnOffsetCommitResponsePartition", "partitions"),
        )),
    )),
    ApiKey.CREATE_ACLS: Errors(items=(Items("results", "AclCreationResult", "creations", message_since=0),)),
    ApiKey.DELETE_ACLS: Errors(items=(
        Items("filter_results", "DeleteAclsFilterResult", "filters", message_since=0, inside=(Items("matching_acls"),)),
    )),
    ApiKey.DESCRIBE_CONFIGS: Errors(items=(
        Items("results", "DescribeConfigsResult", "resources", _RESOURCE, message_since=0),
    )),
    ApiKey.ALTER_CONFIGS: _ALTERED,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTERED,
    ApiKey.ALTER_REPLICA_LOG_DIRS: Errors(items=(
        Items(FLAT, asked="dirs", code="", inside=(
            Items("results", "AlterReplicaLogDirTopicResult", "topics", {"topic_name": "name"}, code="", inside=(
                _indexes("partitions", "AlterReplicaLogDirPartitionResult", "partitions"),
            )),
        )),
    )),
    ApiKey.DESCRIBE_LOG_DIRS: Errors(top_lowest=3, items=(Items("results"),)),
    ApiKey.CREATE_PARTITIONS: Errors(items=(
        Items("results", "CreatePartitionsTopicResult", "topics", _named("name"), message_since=0),
    )),
    ApiKey.DELETE_GROUPS: Errors(items=(
        Items("results", "DeletableGroupResult", "groups_names", {"group_id": ITSELF}),
    )),
    ApiKey.ELECT_LEADERS: Errors(top_lowest=1, items=(
        Items("replica_election_results", "ReplicaElectionResult", "topic_partitions", _named("topic"), code="",
              inside=(_indexes("partition_result", "PartitionResult", "partitions", "partition_id", message_since=0),)),
    )),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Errors(items=(
        Items("responses", code="", inside=(Items("partitions"),)),
    )),
    ApiKey.OFFSET_DELETE: Errors(items=(Items("topics", code="", inside=(Items("partitions"),)),)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Errors(constant={"entries": None}),
    ApiKey.ALTER_CLIENT_QUOTAS: Errors(items=(
        Items("entries", "EntryData", "entries", message_since=0, inside=(
            Items("entity", "EntityData", "entity", _named("entity_type", "entity_name"), code=""),
        )),
    )),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Errors(items=(Items("results"),)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Errors(items=(
        Items("results", "AlterUserScramCredentialsResult", "deletions", {"user": "name"}, distinct="user",
              message_since=0),
        Items("results", "AlterUserScramCredentialsResult", "upsertions", {"user": "name"}, distinct="user",
              message_since=0),
    )),
    ApiKey.VOTE: _quorum(),
    ApiKey.BEGIN_QUORUM_EPOCH: _quorum(),
    ApiKey.END_QUORUM_EPOCH: _quorum(),
    ApiKey.FETCH_SNAPSHOT: _quorum(),
    ApiKey.ALTER_PARTITION: _quorum(),
    ApiKey.DESCRIBE_QUORUM: _quorum(message_since=2),
    ApiKey.UPDATE_FEATURES: Errors(items=(Items("results", highest=1),)),
    ApiKey.DESCRIBE_PRODUCERS: Errors(items=(
        Items("topics", "TopicResponse", "topics", _named("name"), code="", inside=(
            _indexes("partitions", "PartitionResponse", "partition_indexes", message_since=0),
        )),
    )),
    ApiKey.DESCRIBE_TRANSACTIONS: Errors(items=(
        Items("transaction_states", "TransactionState", "transactional_ids", {"transactional_id": ITSELF}),
    )),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Errors(items=(
        Items("directories", code="", inside=(Items("topics", code="", inside=(Items("partitions"),)),)),
    )),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Errors(items=(
        Items("topics", "DescribeTopicPartitionsResponseTopic", "topics", _named("name"), inside=(
            Items("partitions"),
        )),
    )),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _described_groups("group_ids"),
    ApiKey.SHARE_GROUP_DESCRIBE: _described_groups("group_ids"),
    ApiKey.STREAMS_GROUP_DESCRIBE: _described_groups("group_ids"),
    ApiKey.SHARE_FETCH: Errors(items=(Items("responses", code="", inside=(Items("partitions"),)),)),
    ApiKey.SHARE_ACKNOWLEDGE: Errors(items=(Items("responses", code="", inside=(Items("partitions"),)),)),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _share_state("InitializeState"),
    ApiKey.READ_SHARE_GROUP_STATE: _share_state("ReadState"),
    ApiKey.WRITE_SHARE_GROUP_STATE: _share_state("WriteState"),
    ApiKey.DELETE_SHARE_GROUP_STATE: _share_state("DeleteState"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _share_state("ReadStateSummary"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Errors(items=(
        Items("groups", "DescribeShareGroupOffsetsResponseGroup", "groups", _named("group_id"), message_since=0,
              inside=(Items("topics", code="", inside=(Items("partitions"),)),)),
    )),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Errors(items=(
        Items("responses", code="", inside=(Items("partitions"),)),
    )),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Errors(items=(Items("responses"),)),
}  # fmt: skip
_TOP_ONLY: Final = Errors()


# --- error responses ---


def error_response(
    request: Message, version: int, error: int, message: str | None = None, *, at_items: bool = False
) -> Message:
    """Returns the response to `request` when everything has failed with `error`.

    The response contains `message`, or by default the error's own message, wherever this version has an error message.
    If an API reports an error either at the top level or at the items, `at_items` chooses the items.
    """
    steps = error_response_steps(request, version, error, message, at_items=at_items)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def error_response_steps(
    request: Message, version: int, error: int, message: str | None = None, *, at_items: bool = False
) -> Generator[None, None, Message]:
    """Works like `error_response`, but pauses after each item, because a request can name a million items."""
    response: Any = apis.response_class(request.API_KEY)()
    layout = _TABLE.get(request.API_KEY, _TOP_ONLY)
    text = message or ErrorCode(error).message
    at_top = _has_top(layout, response, version) and not (layout.either and at_items)
    if not (layout.either and at_top):
        for items in layout.items:
            yield from _fill(response, response, request, items, version, error, text)
    if at_top:
        response.error_code = error
        for field, value in layout.constant.items():
            setattr(response, field, value)
        for field, since in layout.null_since.items():
            setattr(response, field, None if version >= since else "")
        if "error_message" in response.FIELDS and version >= layout.message_since:
            response.error_message = text
    made: Message = response
    return made


def _fill(
    response: Any, holder: Any, asked: Any, items: Items, version: int, error: int, message: str
) -> Generator[None, None, None]:
    if not items.asked or not items.lowest <= version <= items.highest:
        return
    if items.field == FLAT:
        for each in getattr(asked, items.asked) or ():
            for inner in items.inside:
                yield from _fill(response, holder, each, inner, version, error, message)
        return
    made_class = getattr(response, items.struct)
    fields = {items.code: error, **items.constant} if items.code else items.constant
    if version >= items.message_since:
        fields = {**fields, "error_message": message}
    made = getattr(holder, items.field)
    seen = {getattr(each, items.distinct) for each in made} if items.distinct else set()
    for each in getattr(asked, items.asked) or ():
        copied = {
            field: each if source == ITSELF else _copied(made_class, field, getattr(each, source), version)
            for field, source in items.copied.items()
        }
        if items.distinct:
            if copied[items.distinct] in seen:
                continue
            seen.add(copied[items.distinct])
        item = made_class(**copied, **fields)
        for inner in items.inside:
            yield from _fill(response, item, each, inner, version, error, message)
        made.append(item)
        yield


def _copied(made_class: Any, field: str, value: Any, version: int) -> Any:
    """Returns the value of a copied field. A Metadata request may name topics only by id, but before version 12 a
    response cannot have a null name."""
    return "" if value is None and field == "name" and version < 12 else value


# --- errors of a response ---


def error_of_peer(code: int) -> ErrorCode:
    """Returns the error in another node's answer. A newer release may use codes that this release does not know."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_codes(response: Message, version: int) -> Iterator[int]:
    """Yields every error code in a response, first the one at the top level. Includes NONE."""
    layout = _TABLE.get(response.API_KEY, _TOP_ONLY)
    if _has_top(layout, response, version):
        yield response.error_code  # type: ignore[attr-defined]
    fields = {items.field: items for items in layout.items if items.lowest <= version <= items.highest}
    for items in fields.values():
        yield from _codes_of(response, items)


def _codes_of(holder: Any, items: Items) -> Iterator[int]:
    found = [holder] if items.field == FLAT else getattr(holder, items.field)
    for each in found if isinstance(found, list) else ():  # items that are already encoded have no error
        if items.code:
            yield getattr(each, items.code)
        for inner in items.inside:
            yield from _codes_of(each, inner)


def _has_top(layout: Errors, response: Message, version: int) -> bool:
    return "error_code" in response.FIELDS and layout.top_lowest <= version <= layout.top_highest
