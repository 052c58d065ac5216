"""Our metrics have Apache Kafka's names. The test compares the metrics of the group coordinator and the log cleaner
with release 4.3, and the metrics of KRaft with 3.9 and 4.3.
"""

import re
import zipfile

import pytest
from confluent_kafka.admin import AdminClient

from brokers import APACHE
from java_classes import string_literals
from kafkacore.controller.zookeeper.counts import Counts
from kafkacore.observability.catalogue import metric, metrics
from kafkacore.server.metrics import broker_metrics
from kafkacore.server.zookeeper.metrics import controller_metrics
from kafkacore.testing import Broker
from processes import PEERS, need, wait_until

RELEASE = APACHE["apache-4.3"]
LOG = "org.apache.kafka.storage.internals.log"
COORDINATOR = "org.apache.kafka.coordinator"
CLASSES = {
    ("storage", f"{LOG}.LogCleaner"): ("LogCleaner",),
    ("storage", f"{LOG}.LogCleanerManager"): ("LogCleanerManager",),
    ("group-coordinator", f"{COORDINATOR}.group.metrics.GroupCoordinatorMetrics"): (
        "GroupMetadataManager",
        "group-coordinator-metrics",
    ),
    ("coordinator-common", f"{COORDINATOR}.common.runtime.CoordinatorRuntimeMetricsImpl"): (
        "group-coordinator-metrics",
    ),
}
NAME = re.compile(r"[a-z]+(-[a-z]+)+|Num(Groups|Offsets)[A-Za-z]*|DeadThreadCount")
# Literals that only look like names of metrics: files, throttlers, and groups of metrics.
NO_METRICS = {"cleaner-offset-checkpoint", "cleaner-io", "group-coordinator-metrics"}

ABSENT = {
    r"(offset|group)-.*-rate": "a scrape shows the count, and who asks makes the rate",
    r"(consumer|share|streams)-group-.*": "groups of these kinds are not run yet",
    r"event-(queue|processing|purgatory)-.*|thread-idle-ratio-avg": "no thread and no queue belong to the coordinator: "
    "its requests are the handler loop's, which kafka.network's RequestQueueSize and RequestMetrics show",
    r"background-.*": "nothing of the classic groups runs in the background",
    r"batch-(flush|linger)-.*": "how long a batch took to be made, and lingered, is not kept by batch",
    r"batch-buffer-cache-.*": "no buffers are cached: a batch's memory is its own",
}


def names_in_the_jars():
    found = set()
    for jar, name in CLASSES:
        path = PEERS / f"kafka-{RELEASE}" / f"kafka-{jar}-{RELEASE}.jar"
        need(path.exists(), "no jars of Apache Kafka: run `make peers`")
        found |= {each for each in string_literals(path, name) if NAME.fullmatch(each)}
    return found - NO_METRICS


@pytest.fixture(scope="module")
def ours():
    types = {each for types in CLASSES.values() for each in types}
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.describe_consumer_groups(["g"])["g"].result(30)
        server = broker.node.broker
        wait_until(lambda: server.cleaner is not None, what="the cleaner to start")
        return {sample.name for sample in broker_metrics(server) if sample.type in types}


def test_every_metric_exists_or_has_a_reason_to_be_missing(ours):
    theirs = names_in_the_jars()
    assert {"NumOffsets", "offset-commit-count", "event-queue-size", "max-dirty-percent", "DeadThreadCount"} <= theirs
    missing = theirs - ours
    assert {name for name in missing if not any(re.fullmatch(each, name) for each in ABSENT)} == set()
    for pattern in ABSENT:
        assert any(re.fullmatch(pattern, name) for name in missing), f"no missing metric matches {pattern}"


def test_no_metric_has_a_name_that_kafka_lacks(ours):
    assert ours - names_in_the_jars() == set()


# --- KRaft -----------------------------------------------------------------------------------------------------------

SERVER_METRICS = {
    "apache-4.3": ("server", "org.apache.kafka.server.metrics"),
    "apache-3.9": (None, "kafka.server.metadata"),
}
QUORUM_CLASSES = (
    ("raft", "org.apache.kafka.raft.internals.KafkaRaftMetrics", "raft-metrics"),
    (
        "metadata",
        "org.apache.kafka.controller.metrics.QuorumControllerMetrics",
        "KafkaController|ControllerEventManager",
    ),
    ("metadata", "org.apache.kafka.controller.metrics.ControllerMetadataMetrics", "KafkaController|ControllerStats"),
    ("metadata", "org.apache.kafka.image.loader.metrics.MetadataLoaderMetrics", "MetadataLoader"),
    ("metadata", "org.apache.kafka.image.publisher.metrics.SnapshotEmitterMetrics", "SnapshotEmitter"),
)
# Literals of these classes that may be names of metrics: words with several capitals, or words with hyphens.
QUORUM_NAME = re.compile(r"[A-Z][a-z]+([A-Z][a-z]+)+|[a-z]+(-[a-z]+)+")
NO_QUORUM_METRICS = {
    "KafkaController", "ControllerEventManager", "ControllerStats", "MetadataLoader", "SnapshotEmitter",
    "BrokerMetadataListener", "broker-metadata-metrics", "node-metrics", "feature-name",
    # Names of sensors, and values of the metric current-state.
    "commit-latency", "election-latency", "fetch-records", "append-records", "poll-idle-ratio", "unattached-voted",
    "prospective-voted",
}  # fmt: skip
ABSENT_OF_THE_QUORUM = {
    r"Zk.*|MigratingZkBrokerCount": "kafkacore does not migrate clusters from ZooKeeper; Apache Kafka 3.9 does",
    r"MetadataBatch(ProcessingTimeUs|Sizes)": "a broker takes the image of a controller in the same process",
}


def quorum_names(name):
    release = APACHE[name]
    jars = PEERS / f"kafka-{release}"
    need((jars / ".complete").exists(), "no jars of Apache Kafka: run `make peers`")
    found = set()
    for jar, class_name, _ in QUORUM_CLASSES:
        found |= string_literals(jars / f"kafka-{jar}-{release}.jar", class_name)
    server, package = SERVER_METRICS[name]
    path = jars / (f"kafka-{server}-{release}.jar" if server else f"kafka_2.13-{release}.jar")
    found |= string_literals(path, f"{package if server else 'kafka.server.metadata'}.BrokerServerMetrics")
    if server:
        found |= string_literals(path, f"{package}.NodeMetrics")
    return {each for each in found if QUORUM_NAME.fullmatch(each)} - NO_QUORUM_METRICS


# The metrics of ZooKeeper mode exist only in 3.9. `ControllerState` derives the names of timers from the names of its
# states.
NEVER_RUN = {"ControllerShutdown", "TopicUncleanLeaderElectionEnable", "UpdateMetadataResponseReceived", "Idle"}


def zookeeper_controller_names():
    path = PEERS / f"kafka-{APACHE['apache-3.9']}" / f"kafka_2.13-{APACHE['apache-3.9']}.jar"
    need(path.exists(), "no jars of Apache Kafka: run `make peers`")
    with zipfile.ZipFile(path) as jar:
        states = {
            name.removeprefix("kafka/controller/ControllerState$").removesuffix("$.class")
            for name in jar.namelist()
            if re.fullmatch(r"kafka/controller/ControllerState\$[A-Za-z]+\$\.class", name)
        }
    older = {
        each.removesuffix("RateAndTimeMs"): state
        for state in states
        for each in string_literals(path, f"kafka.controller.ControllerState${state}$")
        if each.endswith("RateAndTimeMs") and each != "RateAndTimeMs"
    }
    names = (states | older.keys()) - set(older.values()) - NEVER_RUN - {""}
    queue = {"EventQueueSize", "EventQueueTimeMs"}
    assert queue <= string_literals(path, "kafka.controller.ControllerEventManager$")
    return {f"{name}RateAndTimeMs" for name in names} | queue


def test_metrics_of_a_controller_in_zookeeper_mode_are_the_same_as_in_3_9():
    ours = {name for type_, name in metrics() if name.endswith("RateAndTimeMs") or type_ == "ControllerEventManager"}
    theirs = zookeeper_controller_names()
    assert {"LeaderElectionRateAndTimeMs", "TopicDeletionRateAndTimeMs"} <= theirs
    assert theirs - ours == set()
    assert ours - theirs == {"EventQueueProcessingTimeMs", "AvgIdleRatio"}, "only KRaft has these"


# The gauges of KafkaController in ZooKeeper mode. The names are the literals of its companion object.
GAUGE_NAME = re.compile(r"[A-Z][A-Za-z]+(Count|State)")
ABSENT_IN_ZOOKEEPER_MODE = {
    "FencedBrokerCount": "always 0, because only KRaft fences brokers",
    "ZkMigrationState": "kafkacore does not migrate clusters from ZooKeeper; Apache Kafka 3.9 does",
}


def zookeeper_gauge_names():
    path = PEERS / f"kafka-{APACHE['apache-3.9']}" / f"kafka_2.13-{APACHE['apache-3.9']}.jar"
    need(path.exists(), "no jars of Apache Kafka: run `make peers`")
    return {each for each in string_literals(path, "kafka.controller.KafkaController$") if GAUGE_NAME.fullmatch(each)}


def test_gauges_of_a_controller_in_zookeeper_mode_are_the_same_as_in_3_9():
    theirs = zookeeper_gauge_names()
    assert "ReplicasIneligibleToDeleteCount" in theirs
    ours = {each.name for each in controller_metrics(Counts(), "Idle", is_active=True)}
    assert theirs - ours == ABSENT_IN_ZOOKEEPER_MODE.keys()
    assert ours - theirs == set()


# The metrics of a broker's connections to ZooKeeper, and of its controller's connections to brokers. The names are
# literals in these classes, and the words between `ZooKeeper` and `PerSec` are literals in ZooKeeperClient's
# constructor.
ZOOKEEPER_CLASSES = (
    ("ControllerChannelManager", r"(Total)?QueueSize|RequestRateAndQueueTimeMs",
     ("kafka.controller.ControllerChannelManager", "kafka.controller.ControllerChannelManager$")),
    ("SessionExpireListener", r"SessionState|[A-Z][A-Za-z]+s",
     ("kafka.zookeeper.ZooKeeperClient",)),
    ("ZooKeeperClientMetrics", r"[A-Z][A-Za-z]+Ms", ("kafka.zk.KafkaZkClient",)),
)  # fmt: skip
ABSENT_OF_THE_SESSION = {
    "ZooKeeperReadOnlyConnectsPerSec": "the client leaves a read-only server before it has a session there",
    "ZooKeeperSaslAuthenticationsPerSec": "the client authenticates with a digest, never with SASL",
}


@pytest.mark.parametrize(("type_", "pattern", "classes"), ZOOKEEPER_CLASSES)
def test_metrics_of_connections_in_zookeeper_mode_are_the_same_as_in_3_9(type_, pattern, classes):
    path = PEERS / f"kafka-{APACHE['apache-3.9']}" / f"kafka_2.13-{APACHE['apache-3.9']}.jar"
    need(path.exists(), "no jars of Apache Kafka: run `make peers`")
    literals = {each for name in classes for each in string_literals(path, name) if re.fullmatch(pattern, each)}
    events = {each for each in literals if not re.search(r"Size|Ms|State", each)}
    theirs = literals - events | {f"ZooKeeper{each}PerSec" for each in events}
    ours = {name for each, name in metrics() if each == type_ and metric(each, name).group.startswith("kafka.")}
    assert ours - theirs == set()
    assert theirs - ours == (ABSENT_OF_THE_SESSION.keys() if type_ == "SessionExpireListener" else set())


def quorum_metrics_of_ours():
    types = {"broker-metadata-metrics", "node-metrics"} | {
        each for _, _, shown in QUORUM_CLASSES for each in shown.split("|")
    }
    return {
        name
        for (type_, name), known in metrics().items()
        if type_ in types and not known.help.startswith("in ZooKeeper mode")
    }


def test_metrics_of_the_quorum_are_the_same_as_in_either_release():
    shipped = {name: quorum_names(name) for name in APACHE}
    assert "NewActiveControllersCount" in shipped["apache-3.9"]
    assert "number-of-voters" in shipped["apache-4.3"] - shipped["apache-3.9"]
    theirs, found = set.union(*shipped.values()), quorum_metrics_of_ours()
    assert found - theirs == set(), "names that exist in no release"
    missing = theirs - found
    assert {name for name in missing if not any(re.fullmatch(each, name) for each in ABSENT_OF_THE_QUORUM)} == set()
    for pattern in ABSENT_OF_THE_QUORUM:
        assert any(re.fullmatch(pattern, name) for name in missing), f"no missing metric matches {pattern}"


# --- replicas --------------------------------------------------------------------------------------------------------

REPLICA_CLASSES = {"Partition": "kafka.cluster.Partition", "ReplicaManager": "kafka.server.ReplicaManager"}
REPLICA_NAME = re.compile(r"[A-Z][A-Za-z]*(Count|Lag|Isr|Replicated|Partitions|PerSec)")


def replica_names(name, class_name):
    release = APACHE[name]
    jars = PEERS / f"kafka-{release}"
    need((jars / ".complete").exists(), "no jars of Apache Kafka: run `make peers`")
    found = set()
    for each in (class_name, f"{class_name}$"):
        found |= string_literals(jars / f"kafka_2.13-{release}.jar", each)
    return {each for each in found if REPLICA_NAME.fullmatch(each)}


@pytest.mark.parametrize("release", APACHE)
@pytest.mark.parametrize("type_", REPLICA_CLASSES)
def test_metrics_of_replicas_are_the_same_as_in_either_release(release, type_):
    theirs = replica_names(release, REPLICA_CLASSES[type_])
    assert len(theirs) >= 6, theirs
    with Broker() as broker:
        samples = broker_metrics(broker.node.broker)
        ours = {each.name for each in samples if each.type == type_ and each.group.startswith("kafka.")}
        listed = {each.name for each in metrics().values() if each.type == type_ and each.group.startswith("kafka.")}
    if type_ == "Partition":
        assert listed == theirs
    else:
        assert ours == listed == theirs


# --- topics, fetchers and purgatories --------------------------------------------------------------------------------

# The jar, the class and the metric type of each. Some classes are no longer in `core` in 4.3.
SHARED_CLASSES = {
    "apache-3.9": (
        ("storage", "org.apache.kafka.storage.log.metrics.BrokerTopicMetrics", "BrokerTopicMetrics"),
        (None, "kafka.server.AbstractFetcherManager", "ReplicaFetcherManager"),
        (None, "kafka.server.FetcherMetrics$", "FetcherStats|FetcherLagMetrics"),
        (None, "kafka.server.DelayedOperationPurgatory", "DelayedOperationPurgatory"),
    ),
    "apache-4.3": (
        ("storage", "org.apache.kafka.storage.log.metrics.BrokerTopicMetrics", "BrokerTopicMetrics"),
        (None, "kafka.server.AbstractFetcherManager", "ReplicaFetcherManager"),
        (None, "kafka.server.FetcherMetrics$", "FetcherStats|FetcherLagMetrics"),
        (
            "server-common",
            "org.apache.kafka.server.purgatory.DelayedOperationPurgatory",
            "DelayedOperationPurgatory",
        ),
    ),
}
SHARED_NAME = re.compile(
    # The literals of a class that are names of metrics.
    r"[A-Z][A-Za-z]*(PerSec|Lag|Rate|Count|Operations)|PurgatorySize"
)
ABSENT_OF_TOPICS = {
    r"FetchMessageConversionsPerSec": "no record is converted for a consumer: those who need it are not served",
    r"(Total|Failed)Share.*RequestsPerSec": "share groups are not there yet",
}


@pytest.mark.parametrize("release", APACHE)
def test_metrics_of_topics_fetchers_and_purgatories_are_the_same_as_in_either_release(release):
    jars = PEERS / f"kafka-{APACHE[release]}"
    need((jars / ".complete").exists(), "no jars of Apache Kafka: run `make peers`")
    for jar, class_name, types in SHARED_CLASSES[release]:
        path = jars / (f"kafka-{jar}-{APACHE[release]}.jar" if jar else f"kafka_2.13-{APACHE[release]}.jar")
        theirs = {each for each in string_literals(path, class_name) if SHARED_NAME.fullmatch(each)}
        assert len(theirs) >= 2, class_name
        listed = {name for each, name in metrics() if each in types.split("|")}
        assert listed - theirs == set(), f"{class_name} does not contain these names"
        absent = {name for name in theirs - listed if not any(re.fullmatch(each, name) for each in ABSENT_OF_TOPICS)}
        assert absent == set(), class_name


def test_broker_shows_every_listed_metric_of_topics_and_purgatories_before_the_first_request():
    types = ("BrokerTopicMetrics", "DelayedOperationPurgatory", "ReplicaFetcherManager")
    with Broker() as broker:
        shown = {(each.type, each.name) for each in broker_metrics(broker.node.broker) if each.type in types}
    assert shown == {key for key in metrics() if key[0] in types}
