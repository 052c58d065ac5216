"""Kafka's errors: their numbers and names, whether a client may retry, and one exception class for each error.

`ErrorCode.NOT_CONTROLLER` is an int that knows its name. `NotControllerError` is its exception. Each exception class is
created at its first use, because a broker answers with codes far more often than it raises errors.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

from kafkacore._fast.base.errors import KafkaError, ProtocolError, UnsupportedVersionError

__all__ = ["ErrorCode", "KafkaError", "ProtocolError", "UnsupportedVersionError", "error_for", "exception_for"]

# Number, name, whether the error is retriable, and the message for cases without a better one. The codes are the same
# as in Apache Kafka 4.3.
_TABLE: Final = (
    (-1, "UNKNOWN_SERVER_ERROR", False, "an unexpected error occurred on the server"),
    (0, "NONE", False, "no error"),
    (1, "OFFSET_OUT_OF_RANGE", False, "the offset is outside the log"),
    (2, "CORRUPT_MESSAGE", True, "a record batch is corrupt: checksum, size, or a missing key in a compacted topic"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", True, "this broker has no such topic or partition"),
    (4, "INVALID_FETCH_SIZE", False, "the fetch size is invalid"),
    (5, "LEADER_NOT_AVAILABLE", True, "the partition has no leader right now"),
    (6, "NOT_LEADER_OR_FOLLOWER", True, "this broker is not the leader of the partition, or has no replica of it"),
    (7, "REQUEST_TIMED_OUT", True, "the request timed out"),
    (8, "BROKER_NOT_AVAILABLE", False, "the broker is not available"),
    (9, "REPLICA_NOT_AVAILABLE", True, "the replica is not available"),
    (10, "MESSAGE_TOO_LARGE", False, "a record batch is larger than max.message.bytes"),
    (11, "STALE_CONTROLLER_EPOCH", False, "the controller has moved to another node"),
    (12, "OFFSET_METADATA_TOO_LARGE", False, "the metadata of an offset commit is too large"),
    (13, "NETWORK_EXCEPTION", True, "the connection broke before the answer"),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", True, "the coordinator is loading its state"),
    (15, "COORDINATOR_NOT_AVAILABLE", True, "the coordinator is not available"),
    (16, "NOT_COORDINATOR", True, "this node is not the coordinator"),
    (17, "INVALID_TOPIC_EXCEPTION", False, "the topic name is invalid, or the topic is internal"),
    (18, "RECORD_LIST_TOO_LARGE", False, "a record batch is larger than a segment"),
    (19, "NOT_ENOUGH_REPLICAS", True, "fewer replicas are in sync than min.insync.replicas"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", True, "written to fewer replicas than min.insync.replicas"),
    (21, "INVALID_REQUIRED_ACKS", False, "acks must be 0, 1 or -1"),
    (22, "ILLEGAL_GENERATION", False, "the group generation is not the current one"),
    (23, "INCONSISTENT_GROUP_PROTOCOL", False, "the member's protocols do not fit those of its group"),
    (24, "INVALID_GROUP_ID", False, "the group id is invalid"),
    (25, "UNKNOWN_MEMBER_ID", False, "the group has no such member"),
    (26, "INVALID_SESSION_TIMEOUT", False, "the session timeout is outside the range that the broker allows"),
    (27, "REBALANCE_IN_PROGRESS", False, "the group is rebalancing; join again"),
    (28, "INVALID_COMMIT_OFFSET_SIZE", False, "the offset commit is too large"),
    (29, "TOPIC_AUTHORIZATION_FAILED", False, "not authorized for the topic"),
    (30, "GROUP_AUTHORIZATION_FAILED", False, "not authorized for the group"),
    (31, "CLUSTER_AUTHORIZATION_FAILED", False, "not authorized for the cluster"),
    (32, "INVALID_TIMESTAMP", False, "a timestamp is out of bounds"),
    (33, "UNSUPPORTED_SASL_MECHANISM", False, "the SASL mechanism is not enabled here"),
    (34, "ILLEGAL_SASL_STATE", False, "the request does not fit the SASL state of the connection"),
    (35, "UNSUPPORTED_VERSION", False, "the version of the API is not supported"),
    (36, "TOPIC_ALREADY_EXISTS", False, "a topic with this name already exists"),
    (37, "INVALID_PARTITIONS", False, "the number of partitions is invalid"),
    (38, "INVALID_REPLICATION_FACTOR", False, "the replication factor is below 1 or above the number of brokers"),
    (39, "INVALID_REPLICA_ASSIGNMENT", False, "the replica assignment is invalid"),
    (40, "INVALID_CONFIG", False, "the configuration is invalid"),
    (41, "NOT_CONTROLLER", True, "this node is not the active controller"),
    (42, "INVALID_REQUEST", False, "the request is malformed or contradicts itself"),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", False, "the message format does not support the request"),
    (44, "POLICY_VIOLATION", False, "a policy of the cluster refuses the request"),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False, "the producer's sequence number is not the next one"),
    (46, "DUPLICATE_SEQUENCE_NUMBER", False, "the producer's sequence number was seen before"),
    (47, "INVALID_PRODUCER_EPOCH", False, "the producer's epoch is old"),
    (48, "INVALID_TXN_STATE", False, "the state of the producer's transaction does not allow this"),
    (49, "INVALID_PRODUCER_ID_MAPPING", False, "the producer id does not belong to the transactional id"),
    (50, "INVALID_TRANSACTION_TIMEOUT", False, "the transaction timeout is above transaction.max.timeout.ms"),
    (51, "CONCURRENT_TRANSACTIONS", True, "another transaction of this producer is still being completed"),
    (52, "TRANSACTION_COORDINATOR_FENCED", False, "a newer transaction coordinator has taken over"),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", False, "not authorized for the transactional id"),
    (54, "SECURITY_DISABLED", False, "security features are disabled"),
    (55, "OPERATION_NOT_ATTEMPTED", False, "not attempted, because another part of the request failed"),
    (56, "KAFKA_STORAGE_ERROR", True, "the disk of the log failed"),
    (57, "LOG_DIR_NOT_FOUND", False, "the broker has no such log directory"),
    (58, "SASL_AUTHENTICATION_FAILED", False, "SASL authentication failed"),
    (59, "UNKNOWN_PRODUCER_ID", False, "the broker no longer knows the producer id"),
    (60, "REASSIGNMENT_IN_PROGRESS", False, "a reassignment of the partition is under way"),
    (61, "DELEGATION_TOKEN_AUTH_DISABLED", False, "delegation tokens are not enabled"),
    (62, "DELEGATION_TOKEN_NOT_FOUND", False, "there is no such delegation token"),
    (63, "DELEGATION_TOKEN_OWNER_MISMATCH", False, "the principal is neither owner nor renewer of the token"),
    (64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", False, "delegation tokens need an authenticated, secure connection"),
    (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", False, "not authorized for the delegation token"),
    (66, "DELEGATION_TOKEN_EXPIRED", False, "the delegation token has expired"),
    (67, "INVALID_PRINCIPAL_TYPE", False, "the principal type is not supported"),
    (68, "NON_EMPTY_GROUP", False, "the group still has members"),
    (69, "GROUP_ID_NOT_FOUND", False, "there is no such group"),
    (70, "FETCH_SESSION_ID_NOT_FOUND", True, "the fetch session does not exist"),
    (71, "INVALID_FETCH_SESSION_EPOCH", True, "the fetch session epoch is not the expected one"),
    (
        72,
        "LISTENER_NOT_FOUND",
        True,
        "the leader has no listener with the name of the listener that received the request",
    ),
    (73, "TOPIC_DELETION_DISABLED", False, "delete.topic.enable is false"),
    (74, "FENCED_LEADER_EPOCH", True, "the leader epoch is older than this broker's"),
    (75, "UNKNOWN_LEADER_EPOCH", True, "the leader epoch is newer than this broker's"),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", False, "the client does not support the compression of the partition"),
    (77, "STALE_BROKER_EPOCH", False, "the broker epoch is not the current one"),
    (78, "OFFSET_NOT_AVAILABLE", True, "the new leader does not know its high watermark yet"),
    (79, "MEMBER_ID_REQUIRED", False, "the member must join again with the id in this response"),
    (80, "PREFERRED_LEADER_NOT_AVAILABLE", True, "the preferred leader is not available"),
    (81, "GROUP_MAX_SIZE_REACHED", False, "the group is full"),
    (82, "FENCED_INSTANCE_ID", False, "another member uses the group instance id now"),
    (83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", True, "no eligible replica can lead the partition"),
    (84, "ELECTION_NOT_NEEDED", True, "the partition needs no election"),
    (85, "NO_REASSIGNMENT_IN_PROGRESS", False, "no reassignment of the partition is under way"),
    (86, "GROUP_SUBSCRIBED_TO_TOPIC", False, "the group is subscribed to the topic"),
    (87, "INVALID_RECORD", False, "a record failed validation"),
    (88, "UNSTABLE_OFFSET_COMMIT", True, "offsets of an open transaction are pending"),
    (89, "THROTTLING_QUOTA_EXCEEDED", True, "a quota is exceeded; retry later"),
    (90, "PRODUCER_FENCED", False, "a newer producer uses the transactional id"),
    (91, "RESOURCE_NOT_FOUND", False, "there is no such resource"),
    (92, "DUPLICATE_RESOURCE", False, "the resource is named twice"),
    (93, "UNACCEPTABLE_CREDENTIAL", False, "the credential is not acceptable"),
    (94, "INCONSISTENT_VOTER_SET", False, "the sender or the receiver is not in the expected set of voters"),
    (95, "INVALID_UPDATE_VERSION", False, "the feature update is invalid"),
    (96, "FEATURE_UPDATE_FAILED", False, "the feature levels could not be updated"),
    (97, "PRINCIPAL_DESERIALIZATION_FAILURE", False, "the principal of a forwarded request could not be read"),
    (98, "SNAPSHOT_NOT_FOUND", False, "there is no such snapshot"),
    (99, "POSITION_OUT_OF_RANGE", False, "the position is outside the snapshot"),
    (100, "UNKNOWN_TOPIC_ID", True, "this broker has no topic with this id"),
    (101, "DUPLICATE_BROKER_REGISTRATION", False, "the broker id is in use"),
    (102, "BROKER_ID_NOT_REGISTERED", False, "the broker id is not registered"),
    (103, "INCONSISTENT_TOPIC_ID", True, "the topic id does not match the log's"),
    (104, "INCONSISTENT_CLUSTER_ID", False, "the cluster id does not match this cluster's"),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", False, "there is no such transactional id"),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", True, "the fetch session mixes topic names and topic ids"),
    (107, "INELIGIBLE_REPLICA", False, "a replica in the new ISR is not eligible"),
    (108, "NEW_LEADER_ELECTED", False, "the ISR changed and a new leader was elected"),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", False, "the offset is in tiered storage"),
    (110, "FENCED_MEMBER_EPOCH", False, "the member epoch is fenced: give up all partitions and join again"),
    (111, "UNRELEASED_INSTANCE_ID", False, "the instance id is still held by another member"),
    (112, "UNSUPPORTED_ASSIGNOR", False, "the assignor is not supported by the group"),
    (113, "STALE_MEMBER_EPOCH", False, "the member epoch is stale: wait for the heartbeat that renews it"),
    (114, "MISMATCHED_ENDPOINT_TYPE", False, "the endpoint type of the request does not match this listener"),
    (115, "UNSUPPORTED_ENDPOINT_TYPE", False, "the endpoint type is not supported"),
    (116, "UNKNOWN_CONTROLLER_ID", False, "there is no controller with this id"),
    (117, "UNKNOWN_SUBSCRIPTION_ID", False, "the telemetry subscription id is outdated"),
    (118, "TELEMETRY_TOO_LARGE", False, "the telemetry is larger than telemetry.max.bytes"),
    (119, "INVALID_REGISTRATION", False, "the controller refuses the registration"),
    (120, "TRANSACTION_ABORTABLE", False, "the transaction must be aborted; then the producer can continue"),
    (121, "INVALID_RECORD_STATE", False, "the record is not in a state that can be acknowledged"),
    (122, "SHARE_SESSION_NOT_FOUND", True, "the share session does not exist"),
    (123, "INVALID_SHARE_SESSION_EPOCH", True, "the share session epoch is not the expected one"),
    (124, "FENCED_STATE_EPOCH", False, "the state epoch of the share group does not match"),
    (125, "INVALID_VOTER_KEY", False, "the voter key is not this replica's"),
    (126, "DUPLICATE_VOTER", False, "the voter is already in the set"),
    (127, "VOTER_NOT_FOUND", False, "the voter is not in the set"),
    (128, "INVALID_REGULAR_EXPRESSION", False, "the regular expression is invalid"),
    (129, "REBOOTSTRAP_REQUIRED", False, "the metadata is stale: bootstrap again"),
    (130, "STREAMS_INVALID_TOPOLOGY", False, "the streams topology is invalid"),
    (131, "STREAMS_INVALID_TOPOLOGY_EPOCH", False, "the epoch of the streams topology is invalid"),
    (132, "STREAMS_TOPOLOGY_FENCED", False, "the epoch of the streams topology is outdated"),
    (133, "SHARE_SESSION_LIMIT_REACHED", True, "too many share sessions"),
)


class ErrorCode(int):
    """An error's number with its `name`, whether it is `retriable`, and its default `message`.

    `ErrorCode(41)` and `ErrorCode.NOT_CONTROLLER` are the same object. An unknown number raises ValueError.
    """

    name: str
    retriable: bool
    message: str
    _by_number: ClassVar[dict[int, ErrorCode]] = {}

    def __new__(cls, code: int) -> Self:
        try:
            return cls._by_number[code]
        except KeyError:
            raise ValueError(f"{code} is not an error code of Kafka's") from None

    def __repr__(self) -> str:
        return f"ErrorCode.{self.name}"

    __str__ = __repr__

    @classmethod
    def all(cls) -> list[ErrorCode]:
        """Returns every error, by number."""
        return list(cls._by_number.values())


def exception_for(code: int) -> type[KafkaError]:
    """Returns the exception class of an error number. Raises ValueError for 0 and for numbers that are not Kafka's."""
    error = ErrorCode(code)
    if not error:
        raise ValueError("NONE is not an error")
    made = _EXCEPTIONS.get(code)
    if made is None:
        words = error.name.removesuffix("_EXCEPTION").removesuffix("_ERROR").split("_")
        name = "".join(word.capitalize() for word in words) + "Error"
        body = {"code": code, "retriable": error.retriable, "__module__": __name__, "__doc__": error.message}
        made = _EXCEPTIONS[code] = type(name, (KafkaError,), body)
    return made


def error_for(code: int, message: str | None = None) -> KafkaError:
    """Returns an exception for an error number. Its text is `message`, or by default the code's own message."""
    return exception_for(code)(ErrorCode(code).message if message is None else message)


_EXCEPTIONS: Final[dict[int, type[KafkaError]]] = {UnsupportedVersionError.code: UnsupportedVersionError}

for _row in _TABLE:
    _code = int.__new__(ErrorCode, _row[0])
    _code.name, _code.retriable, _code.message = _row[1:]
    ErrorCode._by_number[_row[0]] = _code
    setattr(ErrorCode, _row[1], _code)
del _row, _code


def __getattr__(name: str) -> Any:
    if name.endswith("Error"):
        for code in ErrorCode._by_number:
            if code and exception_for(code).__name__ == name:
                globals()[name] = made = exception_for(code)
                return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
