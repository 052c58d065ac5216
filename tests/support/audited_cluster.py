"""Makes the log directories of a stopped cluster with three replicas of each partition, and damages files in one of the
directories."""

import shutil
from pathlib import Path

from confluent_kafka import Producer

from kafkacore.testing import Cluster

COUNT = 400
TOPICS = {"orders": 2, "clicks": 1}
CONFIGS = {
    "min.insync.replicas": 2,
    "log.segment.bytes": 1 << 20,
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.min.cleanable.ratio": "0.01",
}


def written(directory):
    """Writes records to a cluster of three brokers, stops the cluster, and copies its log directories. Returns the
    copies by node id."""
    return troubled(directory, lambda cluster: None)


def troubled(directory, trouble):
    """Works like `written`, but runs `trouble(cluster)` while it writes the records. In the end the brokers have
    acknowledged every record."""
    with Cluster(controllers=1, brokers=3, configs=CONFIGS) as cluster:
        cluster.wait_until_ready()
        for topic, partitions in TOPICS.items():
            cluster.create_topic(topic, partitions, replication_factor=3)
        bootstrap = ",".join(node.bootstrap for node in cluster.brokers.values())
        fill(bootstrap, lambda: trouble(cluster))
        found = {}
        for node in list(cluster.brokers.values()) + list(cluster.controller):
            source = Path(node.server.config.all_log_dirs[0])
            node.stop()
            found[node.node_id] = Path(shutil.copytree(source, directory / f"node-{node.node_id}"))
    return found


def kill_and_recover(cluster, random, times):
    """Kills a random broker, and starts it again as soon as other brokers lead its partitions. Does this `times`
    times."""
    for _ in range(times):
        victim = random.choice(list(cluster.brokers.values()))
        victim.kill()
        for topic, partitions in TOPICS.items():
            for partition in range(partitions):
                cluster.leader(topic, partition)
        victim.start()
        cluster.wait_until(lambda: in_sync(cluster), "all replicas in sync")


def in_sync(cluster):
    image = next(node.image for node in cluster.brokers.values() if node.is_running)
    return all(
        len(image.partition(image.topic(topic), partition).isr) == 3
        for topic, partitions in TOPICS.items()
        for partition in range(partitions)
    )


def fill(bootstrap, between=lambda: None):
    """Writes COUNT records to each topic, and calls `between` halfway, while earlier records may be in flight."""
    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 10, "linger.ms": 1,
        "log_level": 0,
    })  # fmt: skip
    for number in range(COUNT):
        for topic, partitions in TOPICS.items():
            producer.produce(topic, b"value %d" % number, b"key %d" % (number % 50), partition=number % partitions)
        producer.poll(0)
        if number == COUNT // 2:
            between()
    assert producer.flush(60) == 0


# --- damage ---


def first_segment(log_dir, topic, partition=0):
    return min((log_dir / f"{topic}-{partition}").glob("*.log"))


def batches(path):
    """Returns the bytes of each batch in a segment."""
    data, at, found = path.read_bytes(), 0, []
    while at + 12 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append(data[at : at + size])
        at += size
    return found


def base_offset(batch):
    return int.from_bytes(batch[:8], "big")


def at_offset(batch, offset):
    """Returns the batch with another base offset. The batch's checksum does not cover the base offset."""
    return offset.to_bytes(8, "big") + batch[8:]


def lose(path, number):
    """Removes batch `number` from the segment. Returns the batch's base offset."""
    found = batches(path)
    path.write_bytes(b"".join(found[:number] + found[number + 1 :]))
    return base_offset(found[number])


def divide(path, *numbers):
    """Divides a segment before each of these batches. The parts have no indexes."""
    found = batches(path)
    for start, end in zip((0, *numbers), (*numbers, len(found)), strict=True):
        part = path.with_name(f"{base_offset(found[start]) if start else int(path.stem):020}.log")
        part.write_bytes(b"".join(found[start:end]))


def cut(path, number):
    """Truncates the segment at batch `number`. Returns the base offset of that batch."""
    found = batches(path)
    path.write_bytes(b"".join(found[:number]))
    return base_offset(found[number])


def swap(path, first, second):
    """Exchanges the contents of two batches with the same number of records. Returns the base offset of the first
    batch."""
    found = batches(path)
    offsets = base_offset(found[first]), base_offset(found[second])
    found[first], found[second] = at_offset(found[second], offsets[0]), at_offset(found[first], offsets[1])
    path.write_bytes(b"".join(found))
    return offsets[0]


def repeat(path, number, end):
    """Appends a copy of batch `number` to the segment, with base offset `end`."""
    with open(path, "ab") as file:
        file.write(at_offset(batches(path)[number], end))
