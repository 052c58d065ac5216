"""The ApiVersions responses that the broker publishes to the processors. In each version they have the same bytes as
the handler's response."""

from types import SimpleNamespace

from kafkacore.protocol.apis import ApiRange
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
