"""In every version of every API, a response can report that the whole request failed. The search for errors in a
response finds all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore._fast.schema import tables
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.response_errors import error_codes, error_response
from whole_messages import filled

KEYS = sorted(apis.current_apis())
NAMES = {key: api.message for key, api in apis.current_apis().items()}
# These codes apply to a part of the answer, so they do not say whether the request failed.
OTHER_CODES = {"topic_config_error_code", "acknowledge_error_code"}
# The items of these responses are the broker's own directories, so the request does not name them.
CANNOT_FAIL = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}


def codes_in(message: Any) -> Iterator[tuple[Any, str]]:
    """Yields each error code field of a message and of its structs, recognised by its name."""
    for name in message.FIELDS:
        value = getattr(message, name)
        if name.endswith("error_code") and name not in OTHER_CODES:
            yield message, name
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "FIELDS"):
                yield from codes_in(each)


def versions(key: int) -> range:
    api = apis.api(key)
    return range(api.lowest, api.highest + 1)


@pytest.mark.parametrize("key", KEYS, ids=NAMES.get)
@pytest.mark.parametrize("items", ["no items", "items"])
def test_error_response_carries_the_error_in_every_version(key: int, items: str) -> None:
    for version in versions(key):
        request_class = apis.request_class(key)
        request = request_class() if items == "no items" else filled(request_class, version)
        response = error_response(request, version, ErrorCode.NOT_CONTROLLER, "elsewhere")
        encoded = response.encode(version)
        decoded = apis.response_class(key).decode(encoded, version)
        assert decoded.encode(version) == encoded
        codes = set(error_codes(decoded, version)) - {0}
        assert codes <= {ErrorCode.NOT_CONTROLLER}
        if items == "items" and (key, version) not in CANNOT_FAIL:
            assert codes, f"version {version} does not report the failure"


@pytest.mark.parametrize("key", KEYS, ids=NAMES.get)
def test_every_error_code_of_a_response_is_found(key: int) -> None:
    for version in versions(key):
        response = apis.response_class(key).decode(filled(apis.response_class(key), version).encode(version), version)
        expected = []
        fields = tables.message(response.NAME).structs()
        for number, (holder, name) in enumerate(codes_in(response), 1):
            struct = type(holder).__name__
            if version in next(field for field in fields[struct] if field.name == name).versions:
                setattr(holder, name, number)
                expected.append(number)
        assert sorted(error_codes(response, version)) == expected


def test_error_response_names_every_partition_of_a_produce() -> None:
    request = apis.request_class(ApiKey.PRODUCE)(topic_data=[])
    topic = type(request).TopicProduceData(name="t")
    topic.partition_data = [type(request).PartitionProduceData(index=index) for index in (0, 3)]
    request.topic_data = [topic]
    response: Any = error_response(request, 9, ErrorCode.CORRUPT_MESSAGE, "bad")
    [answered] = response.responses
    assert [(each.index, each.error_code, each.base_offset) for each in answered.partition_responses] == [
        (0, 2, -1),
        (3, 2, -1),
    ]


def test_error_response_of_a_fetch_stands_at_the_top_or_at_its_partitions() -> None:
    request = filled(apis.request_class(ApiKey.FETCH), 17)
    at_top: Any = error_response(request, 17, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert (at_top.error_code, at_top.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    at_items: Any = error_response(request, 17, ErrorCode.NOT_LEADER_OR_FOLLOWER, at_items=True)
    assert at_items.error_code == 0
    assert at_items.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_error_response_names_a_user_once() -> None:
    kind = apis.request_class(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    request = kind(
        deletions=[kind.ScramCredentialDeletion(name="a")], upsertions=[kind.ScramCredentialUpsertion(name="a")]
    )
    response: Any = error_response(request, 0, ErrorCode.NOT_CONTROLLER)
    assert [each.user for each in response.results] == ["a"]
