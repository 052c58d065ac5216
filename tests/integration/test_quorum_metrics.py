"""The metrics pages of controllers and brokers show the metrics of KIP-631 and KIP-595, and follow a failover."""

import pytest

from metrics_pages import give_pages, page
from quorums import OURS
from replicated import ReplicatedCluster

pytestmark = pytest.mark.timeout(180)
CONTROLLERS, BROKER = (1, 2, 3), 101
CONTROLLER = "kafka_controller_kafkacontroller"
RAFT = "kafka_server_raftmetrics"
LOADER = "kafka_server_metadataloader"
BROKER_METADATA = "kafka_server_brokermetadatametrics"
# The names that the JMX exporter gives to Kafka's metrics. Dashboards use these names.
OF_A_VOTER = {
    *(
        f"{RAFT}_{name}"
        for name in (
            "current_state", "current_leader", "current_vote", "current_vote_directory_id", "current_epoch",
            "high_watermark", "log_end_offset", "log_end_epoch", "commit_latency_avg", "commit_latency_max",
            "election_latency_avg", "election_latency_max", "append_records_rate", "fetch_records_rate",
            "poll_idle_ratio_avg", "number_of_voters", "number_unknown_voter_connections",
        )
    ),
    *(f"{LOADER}_{name}" for name in ("currentmetadataversion", "currentcontrollerid", "handleloadsnapshotcount")),
    *(f"kafka_server_snapshotemitter_latestsnapshotgenerated{name}" for name in ("bytes", "agems")),
}  # fmt: skip
OF_A_LEADER = {f"{RAFT}_number_of_observers", f"{RAFT}_uncommitted_voter_change"}
OF_A_CONTROLLER = {
    *(
        f"{CONTROLLER}_{name}"
        for name in (
            "activecontrollercount", "eventqueueoperationsstartedcount", "eventqueueoperationstimedoutcount",
            "lastappliedrecordoffset", "lastappliedrecordtimestamp", "lastappliedrecordlagms",
            "lastcommittedrecordoffset", "metadataerrorcount", "fencedbrokercount", "activebrokercount",
            "globaltopiccount", "globalpartitioncount", "offlinepartitionscount", "preferredreplicaimbalancecount",
            "timedoutbrokerheartbeatcount", "newactivecontrollerscount",
        )
    ),
    *(
        f"kafka_controller_controllereventmanager_{name}_count"
        for name in ("eventqueuetimems", "eventqueueprocessingtimems")
    ),
    *(
        f"kafka_controller_controllerstats_{name}_total"
        for name in ("electionfromeligibleleaderreplicas", "uncleanleaderelections")
    ),
}  # fmt: skip
OF_A_BROKER = {
    f"{BROKER_METADATA}_{name}"
    for name in (
        "last_applied_record_offset", "last_applied_record_timestamp", "last_applied_record_lag_ms",
        "metadata_load_error_count", "metadata_apply_error_count",
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = ReplicatedCluster(
        tmp_path_factory.mktemp("cluster"), controllers=dict.fromkeys(CONTROLLERS, OURS), brokers={BROKER: OURS}
    )
    give_pages(cluster)
    try:
        yield cluster.start()
    finally:
        cluster.close()


def values(cluster, node_id):
    return {name: value for (name, _), value in page(cluster, node_id).items()}


def active(cluster, *node_ids):
    """Returns the controller whose page says that it is active, or None if not exactly one of these controllers says
    so."""
    found = [each for each in node_ids if values(cluster, each)[f"{CONTROLLER}_activecontrollercount"]]
    return found[0] if len(found) == 1 else None


def test_pages_have_every_metric_of_the_quorum_under_kafkas_name(cluster):
    for node_id in CONTROLLERS:
        assert set(values(cluster, node_id)) >= OF_A_VOTER | OF_A_CONTROLLER
    assert set(values(cluster, BROKER)) >= OF_A_VOTER | OF_A_BROKER
    cluster.wait(lambda: active(cluster, *CONTROLLERS) is not None, "an active controller")
    assert set(values(cluster, active(cluster, *CONTROLLERS))) >= OF_A_LEADER


def test_pages_follow_a_topic_and_a_failover(cluster):
    def shown(node_id, name):
        return values(cluster, node_id)[name]

    cluster.create("counted", [[BROKER], [BROKER]])
    first = active(cluster, *CONTROLLERS)
    offset = shown(first, f"{CONTROLLER}_lastcommittedrecordoffset")
    for node_id in CONTROLLERS:
        cluster.wait(lambda each=node_id: shown(each, f"{CONTROLLER}_globalpartitioncount") == 2, "both partitions")
        cluster.wait(lambda each=node_id: shown(each, f"{RAFT}_high_watermark") > offset, "the high watermark")
        assert shown(node_id, f"{RAFT}_number_of_voters") == len(CONTROLLERS)
        assert shown(node_id, f"{RAFT}_current_leader") == first
    cluster.wait(
        lambda: shown(BROKER, f"{BROKER_METADATA}_last_applied_record_offset") >= offset, "the broker applies it"
    )
    epoch = shown(first, f"{RAFT}_current_epoch")
    cluster.members[first].kill()
    rest = [each for each in CONTROLLERS if each != first]
    cluster.wait(lambda: active(cluster, *rest) is not None, "another active controller")
    second = active(cluster, *rest)
    assert shown(second, f"{RAFT}_current_epoch") > epoch
    assert shown(second, f"{CONTROLLER}_newactivecontrollerscount") >= 2
    assert shown(second, f"{RAFT}_election_latency_max") >= 0
    cluster.wait(lambda: shown(BROKER, f"{LOADER}_currentcontrollerid") == second, "the broker knows the controller")
    cluster.create("after", [[BROKER]])
    cluster.wait(lambda: shown(second, f"{CONTROLLER}_globaltopiccount") == 2, "the topic that it made")
    cluster.wait(lambda: shown(second, f"{RAFT}_commit_latency_max") > 0, "the latency of its commits")
