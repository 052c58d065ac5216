"""The metrics pages of a cluster's nodes have Kafka's metrics of replication, also while a replica fails."""

import math

import pytest
from confluent_kafka import Producer

from metrics_pages import give_pages, page
from quorums import OURS
from replicated import ReplicatedCluster, Writes

pytestmark = pytest.mark.timeout(180)
LEADER, FOLLOWER, CONTROLLER = 101, 102, 1
# With these settings, the leader removes a silent follower from the ISR before the controller does. Kafka counts only
# ISR changes that leaders make.
SETTINGS = {"replica.lag.time.max.ms": "2000", "broker.session.timeout.ms": "60000"}
REPLICA_MANAGER = "kafka_server_replicamanager"
TOPICS = "kafka_server_brokertopicmetrics"
# The names that the JMX exporter gives to Kafka's metrics. Dashboards use these names.
OF_A_BROKER = {
    *(
        f"{REPLICA_MANAGER}_{name}"
        for name in (
            "underreplicatedpartitions", "underminisrpartitioncount", "atminisrpartitioncount", "leadercount",
            "partitioncount", "offlinereplicacount", "reassigningpartitions", "isrshrinks_total", "isrexpands_total",
            "failedisrupdates_total",
        )
    ),
    *(
        f"{TOPICS}_{name}_total"
        for name in (
            "messagesin", "bytesin", "bytesout", "bytesrejected", "totalproducerequests", "failedproducerequests",
            "totalfetchrequests", "failedfetchrequests", "replicationbytesin", "replicationbytesout",
            "reassignmentbytesin", "reassignmentbytesout",
        )
    ),
    *(f"kafka_server_replicafetchermanager_{name}" for name in ("maxlag", "minfetchrate", "failedpartitionscount")),
    "kafka_server_leaderreplication_byte_rate",
    "kafka_server_followerreplication_byte_rate",
}  # fmt: skip
OF_A_FOLLOWER = {
    "kafka_server_fetcherlagmetrics_consumerlag", "kafka_server_fetcherstats_requests_total",
    "kafka_server_fetcherstats_bytes_total",
}  # fmt: skip
OF_A_CONTROLLER = {
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = ReplicatedCluster(
        tmp_path_factory.mktemp("cluster"),
        controllers={CONTROLLER: OURS},
        brokers={LEADER: OURS, FOLLOWER: OURS},
        settings=SETTINGS,
    )
    give_pages(cluster)
    try:
        yield cluster.start()
    finally:
        cluster.close()


def test_pages_have_every_metric_of_replication_under_kafkas_name(cluster):
    cluster.create("named", [[LEADER, FOLLOWER], [FOLLOWER, LEADER]])
    for node_id in (LEADER, FOLLOWER):
        cluster.wait(
            lambda node_id=node_id: {name for name, _ in page(cluster, node_id)} >= OF_A_BROKER | OF_A_FOLLOWER,
            f"every metric of broker {node_id}",
        )
    assert {name for name, _ in page(cluster, CONTROLLER)} >= OF_A_CONTROLLER


def test_pages_show_a_replica_that_leaves_and_one_that_moves(cluster):
    def shows(node_id, topic=None, **expected):
        """Waits until the metrics page of a node has these values. A tuple means the smallest and the largest allowed
        value."""

        def as_expected():
            found = page(cluster, node_id)
            values.update({name: found.get((name, topic)) for name in wanted})
            return all(
                values[name] is not None and least <= values[name] <= most for name, (least, most) in wanted.items()
            )

        wanted = {
            next(each for each in OF_A_BROKER | OF_A_FOLLOWER if each.endswith(f"_{name}")): (
                value if isinstance(value, tuple) else (value, value)
            )
            for name, value in expected.items()
        }
        values = {}
        try:
            cluster.wait(as_expected, f"the page of {node_id}")
        except TimeoutError as error:
            raise TimeoutError(f"{values} instead of {wanted}: {error}") from None

    some = (1, math.inf)
    cluster.create("pair", [[LEADER, FOLLOWER]])
    cluster.create("strict", [[LEADER, FOLLOWER]], min_insync_replicas="2")
    with Writes(cluster, [("pair", 0)]) as writes:
        shows(
            LEADER,
            underreplicatedpartitions=0,
            underminisrpartitioncount=0,
            leadercount=some,
            replicationbytesout_total=some,
        )
        shows(FOLLOWER, maxlag=(0, math.inf), replicationbytesin_total=some)
        cluster.brokers[FOLLOWER].pause()
        lone = Producer({"bootstrap.servers": cluster.addresses[LEADER], "acks": 1})
        lone.produce("strict", b"of the leader alone")
        assert lone.flush(60) == 0
        shows(LEADER, underreplicatedpartitions=some, atminisrpartitioncount=some, underminisrpartitioncount=1)
        shows(LEADER, isrshrinks_total=some)
        cluster.brokers[FOLLOWER].resume()
        shows(LEADER, underreplicatedpartitions=0, underminisrpartitioncount=0, isrexpands_total=some)
        shows(LEADER, reassignmentbytesout_total=0)
        cluster.move({("pair", 0): [LEADER]})
        cluster.move({("pair", 0): [LEADER, FOLLOWER]})
        shows(LEADER, reassigningpartitions=0, reassignmentbytesout_total=some)
        shows(FOLLOWER, reassignmentbytesin_total=some)
        shows(LEADER, topic="pair", messagesin_total=some, bytesin_total=some)
    cluster.assert_whole(writes)
