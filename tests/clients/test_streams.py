"""Kafka Streams from the releases 4.3 and 3.9: groups that use its own assignor, internal topics, changelogs and
commits.
"""

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

WORDS = ["tea", "rice", "salt"]
PATIENCE_S = 30


def say(broker, topic, words):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for word in words:
        producer.produce(topic, word)
    assert producer.flush(PATIENCE_S) == 0


def count(tools, broker, topic, total, state_dir):
    """Runs a program that continues where the last run of the same program stopped. Returns its counts. It begins to
    count only when the sessions of the last run have ended, because Streams does not leave its group."""
    outcome = tools.run(
        "streams-word-count", topic, f"{topic}-counts", total,
        f"bootstrap.servers={broker.bootstrap}", f"application.id={topic}", f"state.dir={state_dir}",
        "num.stream.threads=2", "commit.interval.ms=100", "auto.offset.reset=earliest",
        "session.timeout.ms=6000", "heartbeat.interval.ms=1000",
    )  # fmt: skip
    return outcome.lines[-1]


def newest_counts(broker, topic, total):
    """Reads the counts by word that the program has written, until their sum is `total`. Returns them."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": f"{topic}-reader", "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.subscribe([f"{topic}-counts"])
    counts = {}
    try:
        while sum(counts.values()) < total:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, counts
            counts[message.key().decode()] = int.from_bytes(message.value(), "big")
    finally:
        consumer.close()
    return counts


def cleanup_policy(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [configs] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return configs.result(PATIENCE_S)["cleanup.policy"].value


def test_streams_program_resumes_from_its_changelog_when_it_runs_again(tools, broker, topic_name, tmp_path):
    for topic in (topic_name, f"{topic_name}-counts"):
        tools.run(
            "kafka-topics", "--bootstrap-server", broker.bootstrap, "--create", "--topic", topic, "--partitions", 3
        )
    say(broker, topic_name, WORDS * 100)
    assert count(tools, broker, topic_name, 300, tmp_path / "first") == "{rice=100, salt=100, tea=100}"
    assert newest_counts(broker, topic_name, 300) == dict.fromkeys(WORDS, 100)
    assert cleanup_policy(broker, f"{topic_name}-counts-changelog") == "compact"
    # The next run starts with an empty directory, so only the broker has the counts.
    say(broker, topic_name, ["tea"] * 50)
    assert count(tools, broker, topic_name, 350, tmp_path / "second") == "{rice=100, salt=100, tea=150}"
