"""Dialogues with confluent-kafka (librdkafka), one in each function. This is a separate program because tests run it
with two releases of the library.

Usage: python confluent_program.py DIALOGUE '{"bootstrap": ..., ...}'. Prints one JSON value, which the test checks.
"""

import json
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition, libversion
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

PATIENCE_S = 30
FIRST_TIMESTAMP_MS = 1_700_000_000_000


def make_topic(admin, name, partitions=1, config=None):
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([topic])[name].result(PATIENCE_S)


def send(settings, topic, count, size, properties):
    """Produces records with keys and headers, some of them with null values. Returns the acknowledged offsets in
    order."""
    acknowledged = []

    def delivered(error, message):
        if error:
            raise KafkaException(error)
        acknowledged.append(message.offset())

    producer = Producer({"bootstrap.servers": settings["bootstrap"], "linger.ms": 20, **properties})
    for number in range(count):
        producer.produce(
            topic, partition=0, key=f"k{number}", value=None if number % 10 == 9 else b"v" * size,
            timestamp=FIRST_TIMESTAMP_MS + number, headers=[("n", str(number)), ("none", None)], on_delivery=delivered,
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0, "not everything was acknowledged"
    return acknowledged


def receive(settings, topic, count, offset=0, **properties):
    """Reads `count` records of partition 0 from `offset` on, with an assigned consumer."""
    consumer = Consumer({
        "bootstrap.servers": settings["bootstrap"], "group.id": "unused", "enable.auto.commit": False,
        "auto.offset.reset": "error", "check.crcs": True, **properties,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, offset)])
    found = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=PATIENCE_S)
        assert messages, f"{len(found)} of {count} records arrived"
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            found.append(message)
    consumer.close()
    return found


def round_trip(settings):
    """Produces records and reads them back. Returns the offsets, and the differences between the written and the read
    records. A correct broker gives no difference."""
    topic, count, size = settings["topic"], settings.get("count", 100), settings.get("size", 100)
    make_topic(AdminClient({"bootstrap.servers": settings["bootstrap"]}), topic)
    offsets = send(settings, topic, count, size, settings.get("properties", {}))
    wrong = []
    for number, message in enumerate(receive(settings, topic, count)):
        expected = (
            number, f"k{number}".encode(), None if number % 10 == 9 else b"v" * size,
            (1, FIRST_TIMESTAMP_MS + number), [("n", str(number).encode()), ("none", None)],
        )  # fmt: skip
        seen = (message.offset(), message.key(), message.value(), message.timestamp(), message.headers())
        if seen != expected:
            wrong.append(repr(seen)[:200])
    return {"offsets": offsets, "wrong": wrong, "librdkafka": libversion()[0]}


def too_large(settings):
    """Sends a record that is larger than max.message.bytes. Returns the name of the error."""
    admin = AdminClient({"bootstrap.servers": settings["bootstrap"]})
    make_topic(admin, settings["topic"], config={"max.message.bytes": "1000"})
    try:
        send(settings, settings["topic"], 1, 2000, {"message.max.bytes": 1_000_000})
    except KafkaException as error:
        return error.args[0].name()
    return None


def topics(settings):
    """Creates, describes, expands and deletes topics. Returns the results, and the error of each invalid request."""
    admin = AdminClient({"bootstrap.servers": settings["bootstrap"]})
    name = settings["topic"]
    make_topic(admin, name, 3, {"retention.ms": "12345"})
    shown = admin.list_topics(timeout=PATIENCE_S).topics[name]
    resource = ConfigResource(ResourceType.TOPIC, name)
    config = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    admin.create_partitions([NewPartitions(name, 5)])[name].result(PATIENCE_S)
    errors = {
        "exists": failure(admin.create_topics([NewTopic(name, 1, 1)])[name]),
        "name": failure(admin.create_topics([NewTopic("not/a/name", 1, 1)])["not/a/name"]),
        "partitions": failure(admin.create_topics([NewTopic(f"{name}.a", 0, 1)])[f"{name}.a"]),
        "replication": failure(admin.create_topics([NewTopic(f"{name}.b", 1, 3)])[f"{name}.b"]),
        "config": failure(admin.create_topics([NewTopic(f"{name}.c", 1, 1, config={"no.such": "1"})])[f"{name}.c"]),
        "value": failure(
            admin.create_topics([NewTopic(f"{name}.d", 1, 1, config={"retention.ms": "soon"})])[f"{name}.d"]
        ),
        "fewer": failure(admin.create_partitions([NewPartitions(name, 2)])[name]),
        "same": failure(admin.create_partitions([NewPartitions(name, 5)])[name]),
        "unknown": failure(admin.delete_topics([f"{name}.nobody"])[f"{name}.nobody"]),
    }
    widened = len(admin.describe_topics(collection(name))[name].result(PATIENCE_S).partitions)
    checked = f"{name}.checked"
    admin.create_topics([NewTopic(checked, 1, 1)], validate_only=True)[checked].result(PATIENCE_S)
    only_checked = checked not in admin.list_topics(timeout=PATIENCE_S).topics
    admin.delete_topics([name], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
    return {
        "partitions": len(shown.partitions),
        "retention": config["retention.ms"].value,
        "cleanup": config["cleanup.policy"].value,
        "widened": widened,
        "errors": errors,
        "validate_only_creates_nothing": only_checked,
        "deleted": name not in admin.list_topics(timeout=PATIENCE_S).topics,
    }


def collection(*names):
    from confluent_kafka import TopicCollection

    return TopicCollection(list(names))


def failure(future):
    try:
        future.result(PATIENCE_S)
    except KafkaException as error:
        return error.args[0].name()
    return None


def offsets(settings):
    """Lists offsets with each kind of specification, and then deletes records. Returns the offsets by name."""
    topic = settings["topic"]
    admin = AdminClient({"bootstrap.servers": settings["bootstrap"]})
    make_topic(admin, topic)
    send(settings, topic, 50, 100, {})
    # The last record has an old timestamp, so the record with the largest timestamp is not the last one.
    producer = Producer({"bootstrap.servers": settings["bootstrap"]})
    producer.produce(topic, partition=0, value=b"late", timestamp=FIRST_TIMESTAMP_MS)
    producer.flush(PATIENCE_S)
    partition = TopicPartition(topic, 0)

    def listed(specification):
        return admin.list_offsets({partition: specification})[partition].result(PATIENCE_S).offset

    seen = {
        "earliest": listed(OffsetSpec.earliest()),
        "latest": listed(OffsetSpec.latest()),
        "max_timestamp": listed(OffsetSpec.max_timestamp()),
        "by_timestamp": listed(OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 20)),
        "after_the_last": listed(OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 1_000_000)),
    }
    low = admin.delete_records([TopicPartition(topic, 0, 30)])[partition].result(PATIENCE_S).low_watermark
    seen["low_watermark"] = low
    seen["earliest_after_delete"] = listed(OffsetSpec.earliest())
    seen["first_read"] = receive(settings, topic, 1, 30)[0].offset()
    seen["below_the_start"] = reset_error(settings, topic, 10)
    seen["beyond_the_end"] = failure(admin.delete_records([TopicPartition(topic, 0, 1000)])[partition])
    return seen


def reset_error(settings, topic, offset):
    try:
        receive(settings, topic, 1, offset)
    except KafkaException as error:
        return error.args[0].name()
    return None


def administration(settings):
    """Changes settings, leaders and SCRAM users. Returns the results, and the errors of invalid requests."""
    from confluent_kafka import ElectionType
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )  # fmt: skip

    admin = AdminClient({"bootstrap.servers": settings["bootstrap"]})
    name = settings["topic"]
    make_topic(admin, name)

    def change(operation, key, value, **how):
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        return failure(admin.incremental_alter_configs([resource], **how)[resource])

    errors = [
        change(AlterConfigOpType.SET, "retention.ms", "88000"),
        change(AlterConfigOpType.APPEND, "cleanup.policy", "compact"),
        change(AlterConfigOpType.SET, "retention.ms", "99000", validate_only=True),
        change(AlterConfigOpType.SET, "retention.ms", "soon"),
        change(AlterConfigOpType.APPEND, "retention.ms", "1"),
    ]
    resource = ConfigResource(ResourceType.TOPIC, name)
    config = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(name, 0)]).result(PATIENCE_S)
    upsertion = UserScramCredentialUpsertion(name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret")
    admin.alter_user_scram_credentials([upsertion])[name].result(PATIENCE_S)
    user = admin.describe_user_scram_credentials([name])[name].result(PATIENCE_S)
    return {
        "errors": errors,
        "config": [config["retention.ms"].value, config["cleanup.policy"].value],
        "elected": [error.name() for error in elected.values()],
        "user": [user.scram_credential_infos[0].iterations],
    }


def cluster(settings):
    """Returns the cluster id, the controller and the brokers, as admin clients see them."""
    admin = AdminClient({"bootstrap.servers": settings["bootstrap"]})
    described = admin.describe_cluster().result(PATIENCE_S)
    return {
        "cluster_id": described.cluster_id,
        "controller": described.controller.id,
        "brokers": {node.id: f"{node.host}:{node.port}" for node in described.nodes},
    }


def unknown_topic(settings):
    """Produces to a topic that the broker may create automatically. Returns the offset, or the name of the error."""
    try:
        return send(settings, settings["topic"], 1, 10, {"message.timeout.ms": 10_000})
    except KafkaException as error:
        return error.args[0].name()


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](json.loads(sys.argv[2]))))
