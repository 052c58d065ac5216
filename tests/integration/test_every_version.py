"""Every API that a listener advertises answers a simple request in every advertised version."""

import socket
import struct

import pytest

from kafkacore.protocol import apis
from kafkacore.protocol import messages as m
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.response_errors import error_codes
from whole_messages import filled
from wire import receive

METADATA = "__cluster_metadata"


def of_metadata(request_class, topic, partition, **fields):
    return request_class(topics=[getattr(request_class, topic)(partitions=[partition()], **fields)])


# With default values in all fields, these requests would be invalid or would wait. So they get other values here.
REQUESTS = {
    "DescribeQuorumRequest": lambda: of_metadata(
        m.DescribeQuorumRequest, "TopicData", m.DescribeQuorumRequest.PartitionData, topic_name=METADATA
    ),
    "ListOffsetsRequest": lambda: of_metadata(
        m.ListOffsetsRequest, "ListOffsetsTopic", m.ListOffsetsRequest.ListOffsetsPartition, name="t"
    ),
    "MetadataRequest": lambda: m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")]),
    "ProduceRequest": lambda: m.ProduceRequest(acks=1, timeout_ms=1000),
    "FetchRequest": lambda: m.FetchRequest(max_wait_ms=0),
    "ApiVersionsRequest": lambda: m.ApiVersionsRequest(client_software_name="t", client_software_version="1"),
}
# An envelope without a request is malformed, so the broker closes the connection.
CLOSED = {"EnvelopeRequest"}


def ask(address, api_key, version):
    """Returns the response, or None if the broker closes the connection."""
    request_class = apis.request_class(api_key)
    request = REQUESTS.get(request_class.NAME, request_class)()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        body = apis.encode_request(version, 7, "every-version", request)
        connection.sendall(struct.pack(">i", len(body)) + body)
        try:
            correlation_id, payload = receive(connection)
        except ConnectionError:
            return None
    assert correlation_id == 7
    skipped = len(apis.response_header(api_key, version, 7)) - 4
    return apis.response_class(api_key).decode(payload[skipped:], version)


@pytest.mark.parametrize("listener", ["bootstrap", "controller"])
def test_every_advertised_version_is_answered(start_node, listener):
    node = start_node("--topic", "t:1")
    address = getattr(node, listener)
    advertised = [(each.api_key, each.min_version, each.max_version) for each in ask(address, 18, 4).api_keys]
    assert len(advertised) > 10
    asked = [
        (apis.request_class(api_key).NAME, api_key, version)
        for api_key, lowest, highest in advertised
        for version in range(max(lowest, 3) if api_key == 0 else lowest, highest + 1)
    ]
    silent = [
        (name, version) for name, api_key, version in asked if name not in CLOSED and not ask(address, api_key, version)
    ]
    assert silent == []


@pytest.mark.parametrize(("listener", "kind"), [("bootstrap", "broker"), ("controller", "controller")])
def test_unserved_api_gets_an_error_and_the_connection_stays_open(start_node, listener, kind):
    address = getattr(start_node(), listener)
    advertised = {each.api_key for each in ask(address, 18, 4).api_keys}
    known = [api for key, api in sorted(apis.current_apis().items()) if kind in api.listeners]
    refused = [api for api in known if api.key not in advertised]
    assert ApiKey.DESCRIBE_ACLS in {api.key for api in refused}
    host, port = address.rsplit(":", 1)
    errors = {}
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        for api in refused:
            request = filled(apis.request_class(api.key), api.highest)
            body = apis.encode_request(api.highest, 7, "unserved", request)
            connection.sendall(struct.pack(">i", len(body)) + body)
            _, payload = receive(connection)
            skipped = len(apis.response_header(api.key, api.highest, 7)) - 4
            response = apis.response_class(api.key).decode(payload[skipped:], api.highest)
            errors[api.key] = {ErrorCode(code).name for code in error_codes(response, api.highest)} - {"NONE"}
    assert errors[ApiKey.DESCRIBE_ACLS] == errors[ApiKey.CREATE_ACLS] == {"SECURITY_DISABLED"}
    for key in (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN):
        assert errors[key] == {"DELEGATION_TOKEN_AUTH_DISABLED"}
    assert errors[ApiKey.SASL_HANDSHAKE] == {"ILLEGAL_SASL_STATE"}
    assert [api.name for api in refused if len(errors[api.key]) != 1] == []
    if kind == "broker":
        assert errors[ApiKey.CONSUMER_GROUP_HEARTBEAT] == errors[ApiKey.END_TXN] == {"UNSUPPORTED_VERSION"}
