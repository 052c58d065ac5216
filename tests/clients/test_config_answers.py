"""Valid and invalid changes of settings, and the settings after these changes. config_answers.txt contains the answers
of Apache Kafka 4.3 (`--peer=apache-4.3`). Changes to a broker are only validated, because all tests share the
broker."""

import asyncio
from pathlib import Path

import pytest

from kafkacore.network.client import NodeClient
from kafkacore.protocol import messages as m
from kafkacore.protocol.errors import ErrorCode
from written_answers import written

ANSWERS = Path(__file__).with_name("config_answers.txt")
SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS = ("=", "delete", "+=", "-=")
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32

# Each change is first validated and then made. It changes the topic as the earlier changes have left it.
OF_A_TOPIC = [
    *[[("cleanup.policy", APPEND, value)] for value in ("compact", "compact", "", "foo", "delete,foo")],
    *[[("cleanup.policy", SUBTRACT, value)] for value in ("delete", "other", "compact")],
    *[[("cleanup.policy", SET, value)] for value in ("foo", "compact, delete", "compact,compact", "", None)],
    *[[("retention.ms", SET, value)] for value in ("-2", "x", " 77 ", "", None, "9223372036854775808")],
    [("retention.ms", APPEND, "5")],
    [("retention.ms", DELETE, "ignored")],
    [("retention.ms", SET, "5"), ("retention.ms", SET, "6")],
    *[[("no.such.key", operation, "5")] for operation in (SET, DELETE, APPEND)],
    [("segment.bytes", SET, "100")],
    [("min.cleanable.dirty.ratio", SET, "1.5")],
    [("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "50")],
    [("max.compaction.lag.ms", SET, "0")],
    *[[("compression.type", SET, value)] for value in ("GZIP", "gzip", "brotli")],
    [("compression.gzip.level", SET, "10")],
    [("compression.zstd.level", SET, "-200000")],
    [("message.timestamp.type", SET, "logappendtime")],
    *[[("preallocate", SET, value)] for value in ("yes", "TRUE")],
    *[[("leader.replication.throttled.replicas", APPEND, value)] for value in ("0:1", "*")],
    [("leader.replication.throttled.replicas", SET, "bad")],
    *[[("min.insync.replicas", SET, value)] for value in ("0", "7")],
    [("delete.retention.ms", SET, "-1")],
    [("remote.storage.enable", SET, "true")],
    [("local.retention.ms", SET, "5")],
    [("message.format.version", SET, "3.0")],
    [("unclean.leader.election.enable", SET, "")],
    [("max.message.bytes", SET, "2147483648")],
    [],
]
OF_A_BROKER = [
    *[(each, "log.retention.ms", SET, "5000") for each in ("", "1", "x", "-1")],
    *[(each, "group.max.size", SET, "5") for each in ("", "1")],
    *[(each, "no.such.key", SET, "5") for each in ("", "1")],
    *[("1", "log.cleaner.threads", SET, value) for value in ("50", "2", "0")],
    ("1", "log.retention.ms", SET, None),
    ("1", "log.cleanup.policy", APPEND, "compact"),
    ("1", "log.retention.ms", APPEND, "5"),
    ("", "log.cleanup.policy", SUBTRACT, "delete"),
    ("", "log.retention.hours", SET, "5"),
    ("1", "message.max.bytes", SET, "-1"),
    ("", "max.connections", SET, "0"),
    ("", "max.connections.per.ip.overrides", SET, "h"),
    ("", "listener.name.plaintext.max.connections", SET, "100"),
    ("1", "listener.name.plaintext.max.connections", SET, "100"),
    ("1", "ssl.keystore.location", SET, "/x"),
    ("", "listeners", SET, "PLAINTEXT://:1"),
    ("1", "log.cleaner.dedupe.buffer.size", SET, "1"),
    ("1", "log.cleaner.io.max.bytes.per.second", SET, "1e6"),
    ("", "min.insync.replicas", SET, "2"),
    ("1", "min.insync.replicas", SET, "2"),
    ("", "min.insync.replicas", DELETE, None),
    ("", "compression.type", SET, "snappy"),
    ("", "producer.id.expiration.ms", SET, "0"),
    ("1", "broker.id", SET, "5"),
    ("1", "log.dirs", SET, "/x"),
    ("", "log.segment.bytes", SET, "5"),
    ("", "log.roll.ms", SET, "0"),
]
OF_OTHERS = [
    *[(GROUP, "g", "consumer.session.timeout.ms", SET, value) for value in ("50000", "5")],
    (GROUP, "g", "consumer.session.timeout.ms", APPEND, "5"),
    (GROUP, "g", "consumer.heartbeat.interval.ms", SET, "60000"),
    (GROUP, "g", "no.such.key", SET, "5"),
    (GROUP, "", "consumer.session.timeout.ms", SET, "50000"),
    *[(GROUP, "g", "share.auto.offset.reset", SET, value) for value in ("foo", "by_duration:PT1H")],
    (GROUP, "g", "streams.num.standby.replicas", SET, "9"),
    *[(CLIENT_METRICS, "m", "interval.ms", SET, value) for value in ("50", "500")],
    (CLIENT_METRICS, "m", "metrics", SET, "a,b"),
    (CLIENT_METRICS, "m", "metrics", APPEND, "c"),
    *[(CLIENT_METRICS, "m", "match", SET, value) for value in ("client_id=[", "foo=a", "client_id=a.*")],
    (CLIENT_METRICS, "", "interval.ms", SET, "500"),
    (CLIENT_METRICS, "m", "no.such.key", SET, "5"),
    (64, "x", "a", SET, "b"),
]


class Asker:
    def __init__(self, bootstrap, prefix):
        host, _, port = bootstrap.rpartition(":")
        self.client = NodeClient(host, int(port), "c")
        self.prefix = prefix
        self.answers = []

    async def alter(self, kind, name, changes, *, validate_only):
        made = m.IncrementalAlterConfigsRequest
        configs = [made.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
        resource = made.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        answer = await self.client.request(made(resources=[resource], validate_only=validate_only), 1)
        return ErrorCode(answer.responses[0].error_code).name

    async def described(self, kind, name, *keys):
        made = m.DescribeConfigsRequest
        resource = made.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        answer = await self.client.request(made(resources=[resource], include_synonyms=True), 4)
        told = answer.results[0]
        if told.error_code:
            return ErrorCode(told.error_code).name
        return ", ".join(sorted(map(self._entry, told.configs))) or "nothing"

    @staticmethod
    def _entry(entry):
        behind = " < ".join(f"{each.name}={each.value}@{each.source}" for each in entry.synonyms)
        flags = "".join(" read-only" * entry.read_only + " sensitive" * entry.is_sensitive)
        return f"{entry.name}={entry.value!r}@{entry.config_source}:{entry.config_type}{flags} ({behind})"

    def tell(self, asked, told):
        self.answers.append(f"{asked} -> {told}".replace(self.prefix, ""))


def worded(changes):
    return "; ".join(f"{key} {OPERATIONS[how]} {value!r}" for key, how, value in changes) or "nothing"


async def of_a_topic(asker):
    name = f"{asker.prefix}t"
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    await asker.client.request(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    for changes in OF_A_TOPIC:
        validated = await asker.alter(TOPIC, name, changes, validate_only=True)
        done = await asker.alter(TOPIC, name, changes, validate_only=False)
        asker.tell(worded(changes), done if done == validated else f"{validated}, {done}")
    for wrong in ("no", "bad name", ""):
        told = await asker.alter(TOPIC, wrong, [("retention.ms", SET, "5")], validate_only=True)
        asker.tell(f"of {wrong!r}", f"{told}, {await asker.described(TOPIC, wrong)}")
    # A broker follows its controller with a delay, so this waits until the broker shows the last change.
    await asker.alter(TOPIC, name, [("retention.ms", SET, "88")], validate_only=False)
    async with asyncio.timeout(20):
        while "retention.ms='88'" not in await asker.described(TOPIC, name, "retention.ms"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    keys = dict.fromkeys(key for changes in OF_A_TOPIC for key, *_ in changes)
    for key in keys:
        asker.tell(key, await asker.described(TOPIC, name, key))


async def of_a_broker(asker):
    for name, *change in OF_A_BROKER:
        told = await asker.alter(BROKER, name, [tuple(change)], validate_only=True)
        asker.tell(f"{name!r}: {worded([change])}", told)
    for wrong in ("x", "7"):
        asker.tell(f"of {wrong!r}", await asker.described(BROKER, wrong))


async def of_groups_and_metrics(asker):
    for kind, name, *change in OF_OTHERS:
        told = await asker.alter(kind, name and asker.prefix + name, [tuple(change)], validate_only=False)
        asker.tell(f"{kind} {name!r}: {worded([change])}", told)
    for kind, name in ((GROUP, ""), (GROUP, "unknown"), (CLIENT_METRICS, ""), (64, "x"), (0, "x")):
        key = "consumer.session.timeout.ms" if kind == GROUP else "interval.ms"
        asker.tell(f"{kind} {name!r}", await asker.described(kind, name and asker.prefix + name, key))


STORIES = of_a_topic, of_a_broker, of_groups_and_metrics


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_broker_answers_config_requests_as_apache_kafka_does(broker, topic_name, story):
    if broker.name == "apache-3.9":
        pytest.skip("the stored answers are those of 4.3, whose keys differ")

    async def asked():
        asker = Asker(broker.bootstrap, f"{topic_name}.")
        try:
            await story(asker)
        finally:
            await asker.client.close()
        return asker.answers

    answers = asyncio.run(asked())
    assert answers == written(ANSWERS, story, answers)
