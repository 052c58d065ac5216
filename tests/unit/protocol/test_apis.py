"""The registry of APIs, and headers, errors, feature levels and ids: facts about Kafka 4.3 that clients depend on."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.schema.headers import request_header
from kafkacore.protocol import apis, errors, features
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersionError, error_for
from kafkacore.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ControlledShutdownRequest,
    MetadataRequest,
    RequestHeader,
)
from kafkacore.protocol.uuid import LOST_DIRECTORY, METADATA_TOPIC_ID, UNASSIGNED_DIRECTORY, ZERO, RandomUuids, Uuid

ROOT = Path(__file__).parents[3]


def advertised(listener, key):
    return {each.api_key: (each.min_version, each.max_version) for each in apis.api_versions_for(listener)}.get(key)


@pytest.mark.parametrize(
    ("key", "versions"),
    [
        (ApiKey.PRODUCE, (0, 13)),  # the answer to versions 0 to 2 is UNSUPPORTED_VERSION (KAFKA-18659)
        (ApiKey.FETCH, (4, 18)),
        (ApiKey.LIST_OFFSETS, (1, 11)),
        (ApiKey.METADATA, (0, 13)),
        (ApiKey.INIT_PRODUCER_ID, (0, 5)),  # version 6 is unstable
        (ApiKey.API_VERSIONS, (0, 4)),
        (ApiKey.LEADER_AND_ISR, None),
        (ApiKey.VOTE, None),  # only controllers serve this API
    ],
)
def test_a_broker_advertises_the_stable_versions_of_4_3(key, versions):
    assert advertised("broker", key) == versions


def test_a_controller_advertises_its_own_apis():
    assert advertised("controller", ApiKey.VOTE) == (0, 2)
    assert advertised("controller", ApiKey.FETCH) == (4, 18)
    assert advertised("controller", ApiKey.PRODUCE) is None
    assert advertised("controller", ApiKey.CONTROLLED_SHUTDOWN) is None


def test_zookeeper_mode_advertises_what_3_9_does():
    assert advertised("zkBroker", ApiKey.PRODUCE) == (0, 11)
    assert advertised("zkBroker", ApiKey.LEADER_AND_ISR) == (0, 7)
    assert advertised("zkBroker", ApiKey.VOTE) is None


def test_only_what_is_implemented_is_advertised():
    assert apis.api_versions_for("broker", {ApiKey.METADATA}) == [apis.ApiRange(ApiKey.METADATA, 0, 13)]


def test_every_api_has_its_name_as_a_constant():
    for api in apis.apis().values():
        assert getattr(ApiKey, api.name) == api.key


@pytest.mark.parametrize(
    ("key", "version", "request_version", "response_version"),
    [
        (ApiKey.METADATA, 8, 1, 0),
        (ApiKey.METADATA, 9, 2, 1),
        # No tagged fields in any version, because every client must be able to read the answer (KIP-511).
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.API_VERSIONS, 99, 2, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 1, 1, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),  # this API is never flexible
    ],
)
def test_headers_have_the_version_that_the_api_s_version_prescribes(key, version, request_version, response_version):
    api = apis.api(key)
    assert api.request_header_version(version) == request_version
    assert api.response_header_version(version) == response_version


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (MetadataRequest(topics=[]), 8),
        (MetadataRequest(topics=[]), 12),
        (ApiVersionsRequest(), 3),
        (ControlledShutdownRequest(), 0),
    ],
)
@pytest.mark.parametrize("client_id", [None, "", "me\u00e9"])
def test_a_request_s_frame_is_taken_apart_as_it_was_put_together(body, version, client_id):
    frame = apis.encode_request(version, -7, client_id, body)
    header = apis.decode_request_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id) == (body.API_KEY, version, -7)
    assert header.client_id == (None if header.header_version == 0 else client_id)
    assert apis.decode_request(header, frame) == body
    # The native processor parses the same header, with the same result.
    raw = None if header.client_id is None else header.client_id.encode()
    assert request_header(frame) == (body.API_KEY, version, -7, raw, header.size)


def test_a_response_s_frame_starts_with_its_header():
    body = ApiVersionsResponse()
    assert apis.encode_response(ApiKey.API_VERSIONS, 3, 5, body) == b"\0\0\0\x05" + body.encode(3)
    assert apis.response_header(ApiKey.METADATA, 12, 5) == b"\0\0\0\x05\0"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x03\0\x0c\0\0\0",
        b"\x03\xe7\0\0\0\0\0\0\xff\xff",  # an unknown API
        b"\xff\xff\0\0\0\0\0\0\xff\xff",
        b"\0\x03\0\x00\0\0\0\x01\x00\x09a",  # the client id is longer than the frame
        b"\0\x03\0\x00\0\0\0\x01\xff\xfea",  # the length of the client id is negative
        b"\0\x03\0\x0c\0\0\0\x01\xff\xff\x05",  # the tagged fields are missing
    ],
)
def test_a_header_that_does_not_fit_is_refused_by_both_readers(frame):
    with pytest.raises(ProtocolError):
        apis.decode_request_header(frame)
    assert request_header(frame) is None


@given(
    st.sampled_from([*apis.apis(), -1, 200]),
    st.integers(-1, 20),
    st.binary(max_size=40) | st.binary(max_size=3).map(lambda more: b"\0\x02ab\x01\x05\x01x" + more),
)
@settings(max_examples=1000)
def test_the_native_reader_of_headers_understands_what_the_table_does(key, version, rest):
    frame = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x07" + rest
    try:
        header_version = apis.api(key).request_header_version(version)
        header, size = RequestHeader.decode_prefix(frame, header_version)
        # For a header without a client id, the table returns an empty one.
        client_id = header.client_id if header_version else None
        expected = apis.RequestHeader(key, version, 7, client_id, header_version, size)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            apis.decode_request_header(frame)
        return
    assert apis.decode_request_header(frame) == expected


def test_a_version_above_ours_has_a_header_but_no_body():
    frame = apis.encode_request(3, 1, "me", ApiVersionsRequest())
    frame = frame[:2] + b"\0\x63" + frame[4:]
    header = apis.decode_request_header(frame)
    assert header.api_version == 99
    with pytest.raises(UnsupportedVersionError, match="API_VERSIONS 99 is not supported; versions 0 to 4 are"):
        apis.decode_request(header, frame)


def test_an_unstable_version_is_not_decoded():
    header = apis.RequestHeader(ApiKey.INIT_PRODUCER_ID, 6, 0, None, 2, 0)
    with pytest.raises(UnsupportedVersionError):
        apis.decode_request(header, b"")


# --- errors ---


def test_errors_have_kafka_s_numbers_names_and_retriable_flags():
    assert [int(each) for each in ErrorCode.all()] == list(range(-1, 134))
    assert (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable) == (6, True)
    assert (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE.retriable) == (10, False)
    assert ErrorCode.FENCED_LEADER_EPOCH.retriable
    assert ErrorCode(41) is ErrorCode.NOT_CONTROLLER
    assert repr(ErrorCode(3)) == "ErrorCode.UNKNOWN_TOPIC_OR_PARTITION"
    with pytest.raises(ValueError, match="1000"):
        ErrorCode(1000)


def test_every_error_has_an_exception_of_its_own():
    classes = {errors.exception_for(each) for each in ErrorCode.all() if each}
    assert len(classes) == 134
    assert all(issubclass(each, KafkaError) and each.__name__.endswith("Error") for each in classes)
    raised = error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, "no such name")
    assert type(raised) is errors.InvalidTopicError
    assert (raised.code, raised.retriable, str(raised)) == (17, False, "no such name")
    assert str(error_for(7)) == ErrorCode.REQUEST_TIMED_OUT.message
    assert type(error_for(35)) is UnsupportedVersionError
    with pytest.raises(AttributeError):
        errors.NoSuchError  # noqa: B018
    with pytest.raises(ValueError, match="NONE"):
        errors.exception_for(0)


# --- feature levels ---


def test_a_release_means_its_latest_metadata_version():
    assert features.parse_metadata_version("4.0").name == "4.0-IV3"
    assert features.parse_metadata_version("3.9.2").level == 21
    assert features.parse_metadata_version("4.1-IV0").level == 26
    assert features.metadata_version(30).name == "4.3-IV0"
    for unknown in ("3.8", "4.4", "", "4"):
        with pytest.raises(ValueError, match=r"3.9-IV0 \(21\) to 4.3-IV0 \(30\)"):
            features.parse_metadata_version(unknown)


@pytest.mark.parametrize(
    ("level", "partition", "register"), [(21, 1, 3), (22, 1, 3), (23, 2, 3), (29, 2, 3), (30, 2, 4)]
)
def test_the_metadata_version_prescribes_the_versions_of_records(level, partition, register):
    version = features.metadata_version(level)
    assert version.record_version("PartitionRecord") == partition
    assert version.record_version("PartitionChangeRecord") == partition
    assert version.record_version("RegisterBrokerRecord") == register
    assert version.record_version("TopicRecord") == 0


def test_a_new_cluster_has_the_levels_that_its_release_ships():
    assert features.default_levels(features.metadata_version(21)) == {
        "metadata.version": 21,
        "kraft.version": 0,
        "transaction.version": 0,
        "group.version": 0,
        "eligible.leader.replicas.version": 0,
        "share.version": 0,
        "streams.version": 0,
    }
    assert features.default_levels(features.LATEST_METADATA_VERSION) == {
        "metadata.version": 30,
        "kraft.version": 0,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
        "share.version": 1,
        "streams.version": 1,
    }


def test_unsupported_features_are_not_finalised():
    ours = features.honoured_levels(features.LATEST_METADATA_VERSION)
    assert {name: level for name, level in ours.items() if level} == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
    }


def test_check_names_the_feature_when_a_cluster_has_an_unknown_level():
    features.check_finalized({"metadata.version": 21, "share.version": 1})
    features.check_finalized({"metadata.version": 30, "transaction.version": 2})
    with pytest.raises(
        ValueError, match=r"metadata\.version 20 is finalised, and 3\.9-IV0 \(21\) to .* --release-version 3\.9"
    ):
        features.check_finalized({"metadata.version": 20})
    with pytest.raises(
        ValueError, match=r"metadata\.version 31 is finalised, but only .* to 4\.3-IV0 \(30\) are known here"
    ):
        features.check_finalized({"metadata.version": 31})
    with pytest.raises(ValueError, match=r"share\.version 2 is finalised, but only 0 to 1 are known here"):
        features.check_finalized({"share.version": 2})
    with pytest.raises(ValueError, match=r"colour 1 is finalised, but this release does not know it"):
        features.check_finalized({"colour": 1})


def test_levels_are_refused_when_out_of_range_or_when_a_dependency_is_missing():
    features.validate_levels({"metadata.version": 23, "eligible.leader.replicas.version": 1})
    with pytest.raises(ValueError, match=r"needs metadata\.version 23 or later, not 22"):
        features.validate_levels({"metadata.version": 22, "eligible.leader.replicas.version": 1})
    with pytest.raises(ValueError, match=r"transaction\.version 3 is not supported; levels 0 to 2 are"):
        features.validate_levels({"transaction.version": 3})
    with pytest.raises(ValueError, match="feature 'colour' is not known"):
        features.validate_levels({"colour": 1})


# --- ids ---


def test_a_uuid_is_its_bytes_and_is_shown_as_kafka_shows_it():
    assert str(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert repr(ZERO) == "Uuid('AAAAAAAAAAAAAAAAAAAAAA')"
    assert bytes(UNASSIGNED_DIRECTORY)[-1] == 1
    assert bytes(LOST_DIRECTORY)[-1] == 2
    made = Uuid.random()
    assert Uuid.parse(str(made)) == made == bytes(made)
    assert {made: 1}[Uuid(bytes(made))] == 1


@pytest.mark.parametrize(
    "text", ["", "A" * 21, "A" * 23, "!" * 22, "AAAAAAAAAAAAAAAAAAAAAR", "AAAAAAAAAAA AAAAAAAAAAQ"]
)
def test_invalid_uuid_is_refused(text):
    with pytest.raises(ValueError, match="22 characters"):
        Uuid.parse(text)


@pytest.mark.parametrize("new_uuid", [Uuid.random, RandomUuids()])
def test_a_random_uuid_is_of_version_4(new_uuid):
    made = {new_uuid() for _ in range(2000)}
    assert len(made) == 2000
    assert {(each[6] >> 4, each[8] >> 6) for each in made} == {(4, 2)}
    for bit in {*range(128)} - {48, 49, 50, 51, 64, 65}:
        assert 500 < sum(each[bit // 8] >> 7 - bit % 8 & 1 for each in made) < 1500, bit


def test_a_random_uuid_does_not_look_like_an_option():
    assert not any(str(Uuid.random()).startswith("-") for _ in range(2000))


# --- generated files ---


def test_the_stubs_are_current():
    done = subprocess.run(
        [sys.executable, ROOT / "ci" / "stubs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
