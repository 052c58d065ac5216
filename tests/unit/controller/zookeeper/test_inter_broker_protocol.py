import pytest

from kafkacore.controller.zookeeper.inter_broker_protocol import LATEST, InterBrokerProtocol


@pytest.mark.parametrize(
    ("text", "leader_and_isr", "update_metadata", "stop_replica"),
    [
        ("0.8.2", 0, 0, 0), ("0.9.0", 0, 1, 0), ("0.10.0", 0, 2, 0), ("0.10.2", 0, 3, 0), ("0.11.0", 0, 3, 0),
        ("1.0", 1, 4, 0), ("2.1", 1, 4, 0), ("2.2", 2, 5, 1), ("2.4-IV0", 3, 5, 1), ("2.4-IV1", 4, 6, 2),
        ("2.6", 4, 6, 3), ("2.8-IV0", 4, 6, 3), ("2.8-IV1", 5, 7, 3), ("3.2", 6, 7, 3), ("3.4", 7, 8, 4),
        ("3.9", 7, 8, 4),
    ],
)  # fmt: skip
def test_versions_of_requests_equal_kafkas_versions(text, leader_and_isr, update_metadata, stop_replica):
    protocol = InterBrokerProtocol(text)
    assert protocol.leader_and_isr_version == leader_and_isr
    assert protocol.update_metadata_version == update_metadata
    assert protocol.stop_replica_version == stop_replica


@pytest.mark.parametrize(
    ("feature", "first", "before"),
    [
        ("has_feature_versions", "2.7-IV0", "2.6-IV0"),
        ("has_alter_partition", "2.7-IV2", "2.7-IV1"),
        ("has_topic_ids", "2.8-IV0", "2.7-IV2"),
        ("has_producer_id_blocks", "3.0-IV0", "2.8-IV1"),
        ("has_leader_recovery", "3.2-IV0", "3.1-IV0"),
    ],
)
def test_feature_begins_with_its_version(feature, first, before):
    assert getattr(InterBrokerProtocol(first), feature)
    assert not getattr(InterBrokerProtocol(before), feature)


def test_release_names_its_last_version():
    assert str(InterBrokerProtocol("2.7")) == "2.7-IV2"
    assert InterBrokerProtocol("3.9.1") == LATEST
    assert InterBrokerProtocol("2.7") < InterBrokerProtocol("2.8")
    assert repr(LATEST) == "InterBrokerProtocol('3.9-IV0')"


@pytest.mark.parametrize("text", ["", "3", "4.0", "3.9-IV7", "2.x", "latest"])
def test_unknown_version_is_refused(text):
    with pytest.raises(ValueError, match="inter-broker protocol"):
        InterBrokerProtocol(text)
