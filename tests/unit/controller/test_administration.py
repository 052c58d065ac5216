"""Requests to a controller for settings, quotas and features: which ones it refuses, and how much they cost."""

from __future__ import annotations

import time

import pytest

from controllers import Caller
from kafkacore.controller.quorum import configuration, quotas
from kafkacore.controller.quorum.decisions import MAX_RECORDS_PER_USER_OP
from kafkacore.metadata.image import EMPTY_IMAGE
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.features import METADATA_VERSION
from kafkacore.protocol.messages import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    ControllerRegistrationRequest,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.replication import OBSERVER_SESSION_MS
from kafkacore.raft.roles import Progress
from kafkacore.raft.voters import ReplicaKey
from kafkacore.runtime.slices import finish_now

BROKER, CLIENT_METRICS = 4, 16
SET, APPEND = 0, 2
# From the first metadata.version with ELR (eligible leader replicas), the controller rejects min.insync.replicas as a
# per-broker config.
BEFORE_ELR = 25
LIMIT_S = 5  # normally about a hundredth of this time is enough


async def alter(harness, name, *changes, operation=SET, kind=BROKER):
    made = IncrementalAlterConfigsRequest
    configs = [made.AlterableConfig(name=key, config_operation=operation, value=value) for key, value in changes]
    resource = made.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    response = await harness.controller.incremental_alter_configs(Caller(), made(resources=[resource]))
    return response.responses[0]


@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min.insync.replicas", "two"),
        ("min.insync.replicas", "0"),
        ("min.insync.replicas", "9" * 5000),
        ("unclean.leader.election.enable", "yes"),
        ("max.connections.per.ip.overrides", "127.0.0.1:" + "9" * 5000),
        ("listener.name.plaintext.max.connections", "many"),
    ],
    ids=lambda text: text[:20],
)
def test_direct_request_with_an_invalid_broker_value_is_refused(run, name, key, value) -> None:
    async def story(harness):
        result = await alter(harness, name, (key, value))
        assert result.error_code == ErrorCode.INVALID_CONFIG
        assert key.removeprefix("listener.name.plaintext.") in result.error_message
        made = AlterConfigsRequest
        resource = made.AlterConfigsResource(
            resource_type=BROKER, resource_name=name, configs=[made.AlterableConfig(name=key, value=value)]
        )
        response = await harness.controller.alter_configs(Caller(), made(resources=[resource]))
        assert response.responses[0].error_code == ErrorCode.INVALID_CONFIG
        assert not harness.controller.image.config(BROKER, name)

    run(story, level=BEFORE_ELR)


def test_valid_broker_values_are_stored(run) -> None:
    async def story(harness):
        changes = [("min.insync.replicas", " 2 "), ("unclean.leader.election.enable", "True"), ("my.own.key", "x")]
        assert (await alter(harness, "", *changes)).error_code == 0
        assert harness.controller.image.config(BROKER, "") == dict(changes)

    run(story, level=BEFORE_ELR)


def test_append_to_a_client_metrics_list_is_refused_as_in_apache_kafka(run) -> None:
    async def story(harness):
        for operation, error in ((APPEND, ErrorCode.INVALID_CONFIG), (SET, 0), (APPEND, ErrorCode.INVALID_CONFIG)):
            result = await alter(harness, "m", ("metrics", "a"), operation=operation, kind=CLIENT_METRICS)
            assert result.error_code == error
        assert harness.controller.image.config(CLIENT_METRICS, "m") == {"metrics": "a"}

    run(story)


@pytest.mark.parametrize("name", ["1_0", " 1", "1 ", "x", "9" * 5000])
def test_invalid_broker_id_is_refused(run, name) -> None:
    async def story(harness):
        assert (await alter(harness, name, ("my.own.key", "x"))).error_code == ErrorCode.INVALID_REQUEST

    run(story)


def test_last_change_of_a_repeated_key_counts(run) -> None:
    async def story(harness):
        listed = ",".join(f"{number}:{number}" for number in range(2000))
        assert (await alter(harness, "1", ("sasl.enabled.mechanisms", listed))).error_code == 0
        begun = time.process_time()
        result = await alter(harness, "1", *[("sasl.enabled.mechanisms", "a")] * 100_000, operation=APPEND)
        assert time.process_time() - begun < LIMIT_S
        assert result.error_code == 0
        assert harness.controller.image.config(BROKER, "1")["sasl.enabled.mechanisms"] == listed + ",a"

    run(story)


@pytest.mark.parametrize("remove", [True, False])
def test_quotas_take_time_linear_in_their_number(remove) -> None:
    made = AlterClientQuotasRequest
    entity = [made.EntityData(entity_type="user", entity_name="alice")]
    ops = [made.OpData(key=f"key{number}", value=1.0, remove=remove) for number in range(50_000)]
    begun = time.process_time()
    for more, told in (([], None if remove else "Invalid configuration key key0"), (ops[-1:], "Duplicate quota key")):
        request = made(entries=[made.EntryData(entity=entity, ops=ops + more)])
        result = finish_now(quotas.alter_client_quotas(EMPTY_IMAGE, request)).response.entries[0]
        assert (result.error_message or "").startswith(told or "")
        assert bool(result.error_code) == bool(told)
    assert time.process_time() - begun < LIMIT_S


def test_unknown_feature_is_refused_at_level_0_too(run) -> None:
    async def story(harness):
        made = UpdateFeaturesRequest
        caller = Caller()
        caller.api_version = 1
        update = made.FeatureUpdateKey(feature="no.such.feature", max_version_level=0, upgrade_type=1)
        response = await harness.controller.update_features(caller, made(timeout_ms=1000, feature_updates=[update]))
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "no.such.feature" in response.error_message

    run(story)


@pytest.mark.parametrize(("levels", "finalized"), [([1, 0], 0), ([0, 1], 1)])
def test_last_update_of_kraft_version_counts_when_a_request_has_several(
    run, levels: list[int], finalized: int, monkeypatch
) -> None:
    async def story(harness):
        checked = []
        monkeypatch.setattr(harness.driver, "why_not_dynamic", lambda: checked.append(1))
        made = UpdateFeaturesRequest
        caller = Caller()
        caller.api_version = 1
        updates = [
            made.FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=1) for level in levels
        ]
        asked = made(timeout_ms=1000, feature_updates=updates)
        assert (await harness.controller.update_features(caller, asked)).error_code == 0
        assert (harness.driver.kraft_version, len(checked)) == (finalized, finalized)

    run(story)


def test_request_with_too_many_changes_is_refused_when_the_limit_is_passed(run, monkeypatch) -> None:
    decided = []
    entries = 3 * MAX_RECORDS_PER_USER_OP
    check = quotas._check_entity
    monkeypatch.setattr(quotas, "_check_entity", lambda *asked: decided.append(1) or check(*asked))
    made = AlterClientQuotasRequest
    ops = [made.OpData(key="producer_byte_rate", value=1.0)]
    asked = made(
        entries=[
            made.EntryData(entity=[made.EntityData(entity_type="user", entity_name=f"u{number}")], ops=ops)
            for number in range(entries)
        ]
    )
    with pytest.raises(KafkaError) as refused:
        finish_now(quotas.alter_client_quotas(EMPTY_IMAGE, asked))
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    assert len(decided) == MAX_RECORDS_PER_USER_OP + 1

    async def story(harness):
        checked = []
        monkeypatch.setattr(configuration, "check_resource", lambda *asked: checked.append(1))
        made = IncrementalAlterConfigsRequest
        configs = [made.AlterableConfig(name="key", config_operation=SET, value="x")]
        resources = [
            made.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=f"m{number}", configs=configs)
            for number in range(entries)
        ]
        with pytest.raises(KafkaError) as refused:
            await harness.controller.incremental_alter_configs(Caller(), made(resources=resources))
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
        assert len(checked) == MAX_RECORDS_PER_USER_OP

    run(story)


def test_removed_controller_of_an_older_release_does_not_prevent_an_upgrade(run) -> None:
    async def story(harness):
        features = [
            ControllerRegistrationRequest.Feature(
                name=METADATA_VERSION, min_supported_version=7, max_supported_version=21
            )
        ]
        old = ControllerRegistrationRequest(
            controller_id=7, incarnation_id=Uuid(b"an older release"), features=features
        )
        await harness.controller.register_controller(Caller(), old)
        role = harness.driver.raft.role
        observer = ReplicaKey(7, Uuid(b"its directory id"))
        role.observers[observer] = Progress(observer)
        role.observers[observer].last_fetch_ms = harness.now
        response = await upgrade(harness)
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "Controller 7 only supports versions 7-21" in response.error_message
        harness.now += OBSERVER_SESSION_MS + 1
        harness.driver.raft.tick(harness.now)
        assert (await upgrade(harness)).error_code == 0
        assert harness.controller.image.features[METADATA_VERSION] == 30

    async def upgrade(harness):
        made = UpdateFeaturesRequest
        update = made.FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=30, upgrade_type=1)
        caller = Caller()
        caller.api_version = 1
        return await harness.controller.update_features(caller, made(timeout_ms=1000, feature_updates=[update]))

    run(story, level=21)
