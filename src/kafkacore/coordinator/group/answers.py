"""Responses that need no group: for requests that are refused before the coordinator looks for the group, and for an
error that applies to a whole request."""

from __future__ import annotations

from typing import Final

from kafkacore.coordinator.group.settings import GroupSettings
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    Message,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
)
from kafkacore.protocol.response_errors import error_response

# The requests that concern one group and whose response has a single error.
GroupRequest = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest | OffsetDeleteRequest

_AFTER_APPEND: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_error(error: int) -> ErrorCode:
    """Returns the error that a client gets if an append of the coordinator failed with `error`."""
    return _AFTER_APPEND.get(ErrorCode(error), ErrorCode(error))


def refusal(settings: GroupSettings, request: GroupRequest, api_version: int = 0) -> Message | None:
    """Returns the response to a request that Kafka refuses before it looks for the group's coordinator, or None if the
    request is valid. The group id must not be empty, and the session timeout must be in range. The response has the
    form of `api_version`."""
    error = ErrorCode.NONE
    least_ms, most_ms = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not request.group_id:
        error = ErrorCode.INVALID_GROUP_ID
    elif isinstance(request, JoinGroupRequest) and not least_ms <= request.session_timeout_ms <= most_ms:
        error = ErrorCode.INVALID_SESSION_TIMEOUT
    if error == ErrorCode.NONE:
        return None
    if isinstance(request, JoinGroupRequest):
        return join_error(api_version, error, request.member_id)
    return whole_request(request, error, api_version)


def whole_request(request: Message, error: int, api_version: int = 0) -> Message:
    """Returns a response that contains one error, for an API whose requests concern one group.

    While a coordinator is loading, a heartbeat succeeds, as in Apache Kafka, because the member has nothing to do yet.
    """
    if request.API_KEY == ApiKey.HEARTBEAT and error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        error = ErrorCode.NONE
    return error_response(request, api_version, error)


def join_error(api_version: int, error: int, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=join_protocol_name(api_version, None))


def join_protocol_name(api_version: int, name: str | None) -> str | None:
    """Returns `name`. If there is no name, returns None, or an empty text before version 7."""
    if api_version < 7:
        return name or ""
    return name or None


def batched_leave(request: LeaveGroupRequest, api_version: int) -> LeaveGroupRequest:
    """Rewrites a request of any version in the form of version 3."""
    if api_version >= 3:
        return request
    member = LeaveGroupRequest.MemberIdentity(member_id=request.member_id)
    return LeaveGroupRequest(group_id=request.group_id, members=[member])


def single_leave(response: LeaveGroupResponse, api_version: int) -> LeaveGroupResponse:
    """Returns the response in the form of the request's version. Before version 3, the error of the one member is the
    error of the whole response."""
    if api_version >= 3:
        return response
    error = response.error_code
    if error == ErrorCode.NONE and response.members:
        error = response.members[0].error_code
    return LeaveGroupResponse(error_code=error)


def fetch_error(
    group: OffsetFetchRequest.OffsetFetchRequestGroup, error: int, api_version: int
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    """Returns the response that reports one error for a group. Before version 2, each partition contains the error.
    Consumers before 3.9 fail after COORDINATOR_NOT_AVAILABLE. So this function replaces this error by NOT_COORDINATOR,
    after which all consumers search for the coordinator again."""
    if error == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        error = ErrorCode.NOT_COORDINATOR
    group_class = OffsetFetchResponse.OffsetFetchResponseGroup
    if api_version >= 2:
        return group_class(group_id=group.group_id, error_code=error)
    topic_class = OffsetFetchResponse.OffsetFetchResponseTopics
    partition_class = OffsetFetchResponse.OffsetFetchResponsePartitions
    return group_class(
        group_id=group.group_id,
        topics=[
            topic_class(
                name=topic.name,
                partitions=[
                    partition_class(partition_index=index, committed_offset=-1, metadata="", error_code=error)
                    for index in topic.partition_indexes
                ],
            )
            for topic in group.topics or ()
        ],
    )
