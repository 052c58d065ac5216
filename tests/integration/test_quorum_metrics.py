"""The metrics of KRaft follow what happens: elections, lost brokers, topics. Three controllers and a broker of ours."""

import math
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from processes import free_ports, wait_until
from quorums import BROKER_ID, LIMIT_S, OURS, MixedQuorum

CONTROLLER = "kafka_controller_kafkacontroller_"
RAFT = "kafka_server_raftmetrics_"
BROKER = "kafka_server_brokermetadatametrics_"


class Measured(MixedQuorum):
    """Each member shows its metrics."""

    def __init__(self, path):
        settings = {"broker.session.timeout.ms": "3000", "metadata.log.max.snapshot.interval.ms": "2000"}
        super().__init__(path, dict.fromkeys((1, 2, 3), OURS), None, dynamic=True, overrides=settings)
        self.pages = {}
        members = {**self.controllers, BROKER_ID: self.broker}
        for (node_id, member), port in zip(members.items(), free_ports(len(members)), strict=True):
            with member.properties.open("a") as properties:
                properties.write(f"metrics.port={port}\n")
            self.pages[node_id] = f"http://127.0.0.1:{port}/metrics"

    def scrape(self, node_id):
        """Values by name; by name and the values of the labels for a metric with labels."""
        with urllib.request.urlopen(self.pages[node_id], timeout=20) as answer:
            page = answer.read().decode()
        return {
            (each.name, *each.labels.values()) if each.labels else each.name: each.value
            for family in text_string_to_metric_families(page)
            for each in family.samples
        }


@pytest.fixture
def quorum(tmp_path):
    made = Measured(tmp_path)
    try:
        made.format()
        made.start()
        yield made
    finally:
        made.close()


def test_metrics_follow_elections_topics_and_lost_brokers(quorum):
    first = quorum.leader()
    name = quorum.create_topic()
    quorum.wait_visible([name])
    quorum.wait_equal()

    # The active controller and a standby.
    [standby, other] = [each for each in quorum.first_voters if each != first]
    active, follows = quorum.scrape(first), quorum.scrape(standby)
    assert (active[CONTROLLER + "activecontrollercount"], follows[CONTROLLER + "activecontrollercount"]) == (1, 0)
    assert active[RAFT + "current_state", "leader"] == follows[RAFT + "current_state", "follower"] == 1
    assert active[RAFT + "current_leader"] == follows[RAFT + "current_leader"] == first
    assert active[RAFT + "current_vote"] == first
    assert active[RAFT + "number_of_voters"] == 3
    assert active[RAFT + "number_of_observers"] == 1
    assert RAFT + "number_of_observers" not in follows
    assert active[RAFT + "append_records_rate"] > 0
    assert follows[RAFT + "fetch_records_rate"] > 0
    assert active[RAFT + "commit_latency_max"] >= active[RAFT + "commit_latency_avg"] >= 0
    assert math.isnan(follows[RAFT + "commit_latency_avg"])
    assert active[CONTROLLER + "eventqueueoperationsstartedcount"] > 0
    assert active["kafka_controller_controllereventmanager_eventqueueprocessingtimems_count"] > 0
    for page in (active, follows):
        assert page[CONTROLLER + "globaltopiccount"] == 1
        assert page[CONTROLLER + "globalpartitioncount"] == 2
        assert page[CONTROLLER + "activebrokercount"] == 1
        assert page[CONTROLLER + "brokerregistrationstate", str(BROKER_ID)] == 30
        assert page["kafka_server_metadataloader_finalizedlevel", "kraftVersion"] == 1
    assert active[CONTROLLER + "timesincelastheartbeatreceivedms", str(BROKER_ID)] >= 0

    # The broker.
    seen = quorum.scrape(BROKER_ID)
    assert seen[RAFT + "current_state", "observer"] == 1
    assert seen[BROKER + "last_applied_record_offset"] >= 0
    assert 0 <= seen[BROKER + "last_applied_record_lag_ms"] < 60_000
    assert seen[BROKER + "metadata_load_error_count"] == 0
    assert not any(CONTROLLER in str(key) for key in seen)

    # An election.
    before = quorum.scrape(other)[CONTROLLER + "newactivecontrollerscount"]
    quorum.controllers[first].kill()
    second = quorum.leader()
    wait_until(
        lambda: quorum.scrape(other)[CONTROLLER + "newactivecontrollerscount"] == before + 1, LIMIT_S, "a new leader"
    )
    page = quorum.scrape(second)
    assert page[CONTROLLER + "activecontrollercount"] == 1
    assert page[RAFT + "election_latency_max"] >= 0

    # A snapshot.
    wait_until(
        lambda: quorum.scrape(second)["kafka_server_snapshotemitter_latestsnapshotgeneratedbytes"] > 0, LIMIT_S,
        "a snapshot",
    )  # fmt: skip

    # A lost broker: its partitions have no leader.
    quorum.broker.kill()
    wait_until(lambda: quorum.scrape(second)[CONTROLLER + "fencedbrokercount"] == 1, LIMIT_S, "the broker is fenced")
    page = quorum.scrape(second)
    assert page[CONTROLLER + "activebrokercount"] == 0
    assert page[CONTROLLER + "offlinepartitionscount"] == 2
    assert page[CONTROLLER + "preferredreplicaimbalancecount"] == 2
    assert page[CONTROLLER + "brokerregistrationstate", str(BROKER_ID)] == 10
    assert page["kafka_controller_controllerstats_uncleanleaderelections_total"] == 0
