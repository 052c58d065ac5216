"""The ApiVersions responses that the broker publishes to the processors. In each version they have the same bytes as
the handler's response. They show only those versions of a forwarded API that the active controller supports too."""

from types import SimpleNamespace

from kafkacore.protocol.apis import ApiKey, ApiRange, with_controller
from kafkacore.server.handlers import api_versions

CONTEXT = SimpleNamespace(
    api_ranges=[ApiRange(0, 0, 13), ApiRange(18, 0, 4)],
    supported_features={"metadata.version": (7, 30), "kraft.version": (0, 1)},
    finalized_features={"metadata.version": 25, "kraft.version": 0},
    finalized_epoch=12,
)


def test_published_bodies_equal_the_handlers_answers():
    versions = range(5)
    alone = [api_versions.response(CONTEXT, version).encode(version) for version in versions]
    assert api_versions.bodies(CONTEXT, versions) == alone
    assert b"kraft.version" in alone[4]
    assert b"kraft.version" not in alone[3]


CREATE, METADATA, QUORUM = ApiKey.CREATE_TOPICS, ApiKey.METADATA, ApiKey.DESCRIBE_QUORUM
OWN = [ApiRange(METADATA, 0, 13), ApiRange(CREATE, 2, 7), ApiRange(QUORUM, 0, 2)]


def test_broker_advertises_its_own_versions_when_the_controllers_versions_are_unknown():
    assert with_controller(OWN, None) == OWN


def test_broker_advertises_common_versions_of_forwarded_apis_only():
    assert with_controller(OWN, {METADATA: (0, 1), CREATE: (0, 5), QUORUM: (1, 9)}) == [
        ApiRange(METADATA, 0, 13),
        ApiRange(CREATE, 2, 5),
        ApiRange(QUORUM, 1, 2),
    ]


def test_broker_hides_a_forwarded_api_when_the_controller_has_no_version_of_it():
    assert with_controller(OWN, {CREATE: (8, 9)}) == [ApiRange(METADATA, 0, 13)]
