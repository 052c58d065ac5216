"""DeleteTopics: deletes topics by name or by id."""

from __future__ import annotations

from typing import Any, Final

from kafkacore.controller.quorum.decisions import Decision, Settings, limit_records
from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import DeleteTopicsResponse, Message, RemoveTopicRecord
from kafkacore.protocol.uuid import ZERO, Uuid
from kafkacore.runtime.slices import Work, counted

DISABLED_SINCE: Final = 3  # first version with an error code for disabled deletion
Result = DeleteTopicsResponse.DeletableTopicResult


def delete_topics(image: MetadataImage, settings: Settings, request: Any, api_version: int) -> Work[Decision]:
    """Deletes topics. Raises TOPIC_DELETION_DISABLED if delete.topic.enable is false."""
    if not settings.config.delete_topic_enable:
        if api_version < DISABLED_SINCE:
            raise error_for(ErrorCode.INVALID_REQUEST, "This version does not support topic deletion.")
        raise error_for(ErrorCode.TOPIC_DELETION_DISABLED)
    results: list[Any] = []
    chosen: dict[Uuid, str] = {}
    names, ids = yield from _asked(request, results)
    for topic_id in ids:
        yield
        topic = image.topic_by_id(topic_id)
        if topic is None:
            results.append(_refused(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            chosen[topic_id] = topic.name
    for name in names:
        yield
        topic = image.topic(name)
        if topic is None:
            results.append(_refused(name, ZERO, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif topic.topic_id in chosen:
            del chosen[topic.topic_id]
            message = "The provided topic name maps to an ID that was already supplied."
            results.append(_refused(name, topic.topic_id, ErrorCode.INVALID_REQUEST, message))
        else:
            chosen[topic.topic_id] = name
    limit_records(len(chosen))
    records: list[Message] = []
    for topic_id, name in chosen.items():
        yield
        records.append(RemoveTopicRecord(topic_id=topic_id))
        results.append(Result(name=name, topic_id=topic_id))
    return Decision(records, DeleteTopicsResponse(responses=results))


def _asked(request: Any, results: list[Any]) -> Work[tuple[list[str], list[Uuid]]]:
    """Returns the names and ids that occur exactly once in the request. Adds an error to `results` for every other
    entry."""
    names, ids = list(request.topic_names), []
    for topic in request.topics:
        yield
        if topic.name is None and topic.topic_id == ZERO:
            message = "Neither topic name nor id were specified."
            results.append(_refused(None, ZERO, ErrorCode.INVALID_REQUEST, message))
        elif topic.name is None:
            ids.append(topic.topic_id)
        elif topic.topic_id == ZERO:
            names.append(topic.name)
        else:
            message = "You may not specify both topic name and topic id."
            results.append(_refused(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, message))
    name_counts = yield from counted(names)
    id_counts = yield from counted(ids)
    for name, count in name_counts.items():
        yield
        if count > 1:
            results.append(_refused(name, ZERO, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
    for topic_id, count in id_counts.items():
        yield
        if count > 1:
            results.append(_refused(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id."))
    return [n for n, count in name_counts.items() if count == 1], [i for i, count in id_counts.items() if count == 1]


def _refused(name: str | None, topic_id: Uuid, error: ErrorCode, message: str | None = None) -> Any:
    return Result(name=name, topic_id=topic_id, error_code=error, error_message=message or error.message)
