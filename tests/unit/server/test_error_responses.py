"""Every API can say that a whole request failed, in every version that it serves."""

import pytest

from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode
from kafkacore.server.error_responses import error_response
from kafkacore.server.handlers import TABLES

SERVED = sorted({key for table in TABLES.values() for key in table})


@pytest.mark.parametrize("key", SERVED)
def test_every_version_of_an_error_response_encodes(key: int) -> None:
    api = apis.api(key)
    request = apis.request_class(key)()
    for version in range(api.lowest, api.highest + 1):
        response = error_response(
            request, RequestContext(key, version, 0, None, "", ""), ErrorCode.NOT_CONTROLLER, "elsewhere"
        )
        encoded = response.encode(version)
        assert apis.response_class(key).decode(encoded, version).encode(version) == encoded


def test_an_itemized_error_names_every_item() -> None:
    request = apis.request_class(0)(topic_data=[])
    topic = type(request).TopicProduceData(name="t")
    topic.partition_data = [type(request).PartitionProduceData(index=index) for index in (0, 3)]
    request.topic_data = [topic]
    response = error_response(request, RequestContext(0, 9, 0, None, "", ""), ErrorCode.CORRUPT_MESSAGE, "bad")
    [answered] = response.responses
    assert [(each.index, each.error_code, each.base_offset) for each in answered.partition_responses] == [
        (0, 2, -1),
        (3, 2, -1),
    ]
    response.encode(9)
