"""Random server.properties files. Our node accepts exactly the files that Apache Kafka's KafkaConfig accepts."""

import random
import subprocess

import pytest

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.config.properties import store
from processes import PEERS, ROOT, need
from seeds import SEED

CONFIGS = 600
CHANGED = 0.3
JAVA_TIMEOUT_S = 90
# The valid values of a key come first in its list, and are chosen more often. So, many of the random configurations are
# valid.
LISTENERS = {
    "listeners": [
        "PLAINTEXT://:9092,CONTROLLER://:9093", "PLAINTEXT://:9092", "CONTROLLER://:9093", "PLAINTEXT://:9092,CONTROLLER://:9092",
        "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092", "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093", "plaintext://h:0",
        "SSL://:9092,CONTROLLER://:9093", "SASL_PLAINTEXT://:9092,CONTROLLER://:9093", "EXTRA://:1,PLAINTEXT://:2,CONTROLLER://:3",
        "PLAINTEXT:9092", "PLAINTEXT://:9092,", "",
    ],
    "advertised.listeners": [
        None, None, "PLAINTEXT://h:1", "PLAINTEXT://h:1,CONTROLLER://h:1", "CONTROLLER://h:1", "SSL://h:1", "PLAINTEXT://0.0.0.0:1",
        "EXTRA://h:4",
    ],
    "listener.security.protocol.map": [
        None, None, "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "PLAINTEXT:PLAINTEXT", "PLAINTEXT:TLS",
    ],
    "controller.listener.names": ["CONTROLLER", "CONTROLLER", "CONTROLLER,EXTRA", "NONE", "", None],
    "inter.broker.listener.name": [None, None, None, "PLAINTEXT", "EXTRA", "CONTROLLER", "SSL", "none"],
    "security.inter.broker.protocol": [None, None, None, "PLAINTEXT", "SASL_PLAINTEXT", "SSL", "TLS"],
    "sasl.mechanism.inter.broker.protocol": [None, None, "PLAIN"],
    "sasl.enabled.mechanisms": [None, "PLAIN"],
}  # fmt: skip
QUORUM = {
    "process.roles": ["broker,controller", "broker,controller", "broker", "controller", "broker,broker", "", None],
    "node.id": ["1", "1", "2", "-1", None],
    "broker.id": [None, None, "1", "2"],
    "controller.quorum.voters": ["1@h:9093", "1@h:9093", "2@h:1,3@h:2", "1@h", "", None],
    "controller.quorum.bootstrap.servers": [None, "h:9093", "h"],
}
LIMITS = {
    "log.dirs": [None, "/a,/b", "/a,/a", "", "/a,"],
    "log.retention.ms": [None, "5", "-1", "-2", "0", "x"],
    "log.retention.hours": [None, "0", "-1"],
    "log.roll.ms": [None, "0", "1"],
    "log.roll.jitter.ms": [None, "-1"],
    "log.cleaner.dedupe.buffer.size": [None, "1048577", "1048576"],
    "log.cleaner.threads": [None, "3"],
    "log.cleanup.policy": [None, "", "compact,delete", "compact,compact", "keep"],
    "replica.fetch.wait.max.ms": [None, "31000"],
    "replica.lag.time.max.ms": [None, "31000"],
    "queued.max.request.bytes": [None, "1000", "104857600"],
    "max.connections.per.ip": [None, "0"],
    "max.connections.per.ip.overrides": [None, "h:1", "a b:1"],
    "connections.max.idle.ms": [None, "-1", "100", "101"],
    "compression.gzip.level": [None, "-1", "0", "9", "10"],
    "num.partitions": [None, "+3", "0", " 4 ", "1_0"],
    "log.cleaner.min.cleanable.ratio": [None, "1.01", "1e-1", "0.5f"],
    "auto.create.topics.enable": [None, "True", "1"],
    "cordoned.log.dirs": [None, "*", "/a", "*,/a"],
}
ZOOKEEPER = {
    "zookeeper.connect": ["localhost:2181"],
    "listeners": [
        "PLAINTEXT://:9092,EXTRA://:9093", "PLAINTEXT://:9092", "PLAINTEXT://:9092,SSL://:9093", "PLAINTEXT://h:1,EXTRA://h:1",
    ],
    "advertised.listeners": [None, None, "PLAINTEXT://h:1", "PLAINTEXT://h:1,EXTRA://h:2", "EXTRA://h:1"],
    "listener.security.protocol.map": ["PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT,SSL:SSL", None, "PLAINTEXT:PLAINTEXT"],
    "control.plane.listener.name": [None, "EXTRA", "EXTRA", "PLAINTEXT", "SSL", "NONE", "extra"],
    "inter.broker.listener.name": [None, "PLAINTEXT", "EXTRA"],
    "security.inter.broker.protocol": [None, None, None, "SSL"],
    "broker.id": ["0", None, "-1", "1000", "1001", "-2"],
    "broker.id.generation.enable": [None, "false"],
    "reserved.broker.max.id": [None, "10"],
    "controller.listener.names": [None, None, None, "EXTRA"],
    "zookeeper.metadata.migration.enable": [None, None, None, "true"],
    "controller.quorum.voters": [None, "1@h:9093"],
    "log.segment.bytes": [None, "14", "13"],
    "log.message.format.version": [None, "2.8", "4.5"],
}  # fmt: skip
KRAFT_SPACES = [
    {**LISTENERS, **{key: values[:2] for key, values in QUORUM.items()}},
    {**QUORUM, **{key: values[:3] for key, values in LISTENERS.items()}},
    {**LIMITS, **{key: values[:1] for key, values in (LISTENERS | QUORUM).items()}},
]


def random_config(rng, spaces):
    """Returns a random configuration. Most of its keys have the first value in their list, which is valid."""
    space = rng.choice(spaces)
    config = {key: rng.choice(values) if rng.random() < CHANGED else values[0] for key, values in space.items()}
    return {key: value for key, value in config.items() if value is not None}


def ours(properties):
    try:
        BrokerConfig(properties)
    except ConfigError as error:
        return f"refused {error}"
    return "taken"


@pytest.mark.parametrize(
    ("release", "spaces"), [("4.3.1", KRAFT_SPACES), ("3.9.2", [ZOOKEEPER])], ids=["4.3, KRaft", "3.9, ZooKeeper"]
)
def test_node_accepts_the_configurations_that_apache_kafka_accepts(release, spaces):
    jars = PEERS / f"kafka-{release}"
    need((jars / ".complete").exists(), "no jars of Apache Kafka: make peers")
    rng = random.Random(SEED)
    configs = [random_config(rng, spaces) for _ in range(CONFIGS)]
    asked = "".join(f"{store(config).hex()}\n" for config in configs)
    command = ["java", "-cp", f"{jars}/*", str(ROOT / "ci" / "config" / "AcceptConfig.java")]
    answer = subprocess.run(command, input=asked, check=True, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S)
    theirs = answer.stdout.splitlines()
    different = [
        (config, mine, its)
        for config, its in zip(configs, theirs, strict=True)
        if (mine := ours(config)).split()[0] != its.split()[0]
    ]
    assert not different, f"KAFKACORE_SEED={SEED}: {len(different)} results differ; the first is {different[0]}"
    assert CONFIGS // 10 < theirs.count("taken") < CONFIGS * 9 // 10
