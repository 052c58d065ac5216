"""Our errors, APIs, headers, metadata versions and feature levels, compared with Apache Kafka's."""

import json

import pytest

from golden import RELEASES, golden_file
from kafkacore.protocol import apis, features
from kafkacore.protocol.errors import ErrorCode
from kafkacore.server import handlers

# This API has another name since 3.9 (KIP-1142).
RENAMED = {"LIST_CLIENT_METRICS_RESOURCES": "LIST_CONFIG_RESOURCES"}


@pytest.fixture(scope="module")
def facts():
    return {release: json.loads(golden_file(release, "Facts").read_text()) for release in RELEASES}


def test_every_error_has_kafka_s_number_name_and_retriable_flag(facts):
    ours = {(int(each), each.name, each.retriable) for each in ErrorCode.all()}
    assert ours == {(each["code"], each["name"], each["retriable"]) for each in facts["4.3"]["errors"]}


@pytest.mark.parametrize(("release", "registry"), [("3.9", apis.former_apis), ("4.3", apis.current_apis)])
def test_every_api_has_kafka_s_stable_versions_listeners_and_headers(facts, release, registry):
    rows = {each["key"]: each for each in facts[release]["apis"] if each["lowest"] <= each["highest"]}
    assert registry().keys() == rows.keys()
    for key, api in registry().items():
        row = rows[key]
        versions = range(api.lowest, api.highest + 1)
        assert (api.lowest, api.highest) == (row["lowest"], row["highest"])
        assert RENAMED.get(row["name"], row["name"]) == api.name
        assert {each.upper() for each in api.listeners} == {each.replace("_", "") for each in row.get("listeners", [])}
        assert [api.request_header_version(version) for version in versions] == row["request_headers"]
        assert [api.response_header_version(version) for version in versions] == row["response_headers"]


@pytest.mark.parametrize("release", RELEASES)
def test_broker_forwards_the_apis_that_kafka_s_broker_forwards(facts, release):
    theirs = {each["key"] for each in facts[release]["apis"] if each["forwardable"]}
    assert {key for key in handlers.BROKER if key in theirs} == apis.FORWARDABLE


def test_every_metadata_version_has_kafka_s_record_versions(facts):
    rows = {each["level"]: each for each in facts["4.3"]["metadata_versions"] if each["production"]}
    for version in features.METADATA_VERSIONS:
        row = rows[version.level]
        assert (version.name, version.changes_records) == (row["name"], row["changes_records"])
        assert version.record_version("PartitionRecord") == row["partitionRecordVersion"]
        assert version.record_version("PartitionChangeRecord") == row["partitionChangeRecordVersion"]
        assert version.record_version("RegisterBrokerRecord") == row["registerBrokerRecordVersion"]
        assert version.fetch_version == row["fetchRequestVersion"]
        assert version.list_offsets_version == row["listOffsetRequestVersion"]
    assert max(rows) == features.LATEST_METADATA_VERSION.level


def test_every_feature_has_kafka_s_levels_and_defaults(facts):
    rows = {each["name"]: each for each in facts["4.3"]["features"]}
    assert features.FEATURES.keys() == rows.keys() | {features.METADATA_VERSION}
    for name, row in rows.items():
        feature = features.FEATURES[name]
        assert (feature.lowest, feature.highest) == (row["lowest"], row["highest"])
        # The formatter chooses the level of kraft.version itself, depending on the kind of quorum.
        if name != features.KRAFT_VERSION:
            for version in features.METADATA_VERSIONS:
                assert feature.default_level(version) == row["defaults"][str(version.level)], (name, version.name)
