"""`kafkacore demo`: real clients write and read a text while SIGKILL ends the node. Then a cluster loses a leader, and
later all controllers. At the end, Apache Kafka takes the place of a broker."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from kafkacore.tools.demo_cluster import show_cluster
from kafkacore.tools.demo_parts import (
    PATIENCE_S,
    DemoFailedError,
    DemoNode,
    Writer,
    check_same,
    create_topic,
    heading,
    read,
    report,
    say,
    wait_for,
)
from kafkacore.tools.numbers import whole_number

DESCRIPTION: Final = (
    "Lets real clients write a real text to a node, kills the node while they write, and shows what survived. "
    "Then kills a leader and all controllers of a cluster, and replaces a broker by Apache Kafka if that is installed."
)
PARTITIONS: Final = 3
LATENCY_SAMPLES: Final = 1000
AIOKAFKA_SHARE: Final = 10
GROUP_SHARE: Final = 10
MEMBERS: Final = 3
# The number of lines sent just before SIGKILL, without waiting for acknowledgements. The writer polls for
# acknowledgements only after every 1,000 lines.
UNDER_WAY: Final = 999
SESSION_MS: Final = 2_000
NEEDS_CLIENTS: Final = "the demo needs confluent-kafka and aiokafka: pip install 'kafkacore[test]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--records", type=whole_number(1), default=300_000, metavar="N", help="lines of text (default %(default)s)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the directories of the nodes, to look at their files")


def run(arguments: argparse.Namespace) -> int:
    """Runs the demo. Returns 0 if every sent record was found again. Otherwise prints the missing record, and returns
    1."""
    try:
        import aiokafka  # noqa: F401
        import confluent_kafka  # noqa: F401
    except ImportError:
        print(f"kafkacore: {NEEDS_CLIENTS}", file=sys.stderr)
        return 1
    directory = Path(tempfile.mkdtemp(prefix="kafkacore-demo-"))
    node = DemoNode(directory / "node", {"group.min.session.timeout.ms": str(SESSION_MS)})
    text = read_text(max(arguments.records, PARTITIONS))
    try:
        tell(node, text)
        node.stop()
        show_cluster(directory / "cluster", text)
        say_where_to_go()
    except DemoFailedError as error:
        print(f"\nkafkacore: {error}", file=sys.stderr)
        return 1
    finally:
        node.stop()
        if arguments.keep:
            say(f"The files of the nodes are in {directory}")
        else:
            shutil.rmtree(directory)
    return 0


def tell(node: DemoNode, text: list[bytes]) -> None:
    """Shows the first part of the demo, with one node. Each function called here shows one step."""
    size_mb = sum(map(len, text)) / 1e6
    say(f"{len(text):,} lines of Python's standard library, {size_mb:.1f} MB, through real clients.")
    took_s = node.start()
    heading("One node, broker and controller, without any configuration")
    say(f"ready in {took_s * 1000:.0f} ms, counted from the start of its process: {node.bootstrap}, pid {node.pid}")
    bulk(node.bootstrap, text)
    asyncio.run(aiokafka_reads_and_writes(node.bootstrap, text[: len(text) // AIOKAFKA_SHARE or 1]))
    latency(node.bootstrap)
    share_and_take_over(node.bootstrap, text[: len(text) // GROUP_SHARE or 1])
    kill_and_recover(node, text)


def say_where_to_go() -> None:
    """Prints commands that the user can enter in the current directory."""
    heading("Where to go next")
    kafkacore = "kafkacore" if shutil.which("kafkacore") else sys.argv[0]
    steps = {
        f"{kafkacore} dev --topic mine:3": "runs a node for your own clients, and prints its address",
        f"{kafkacore} storage format --help": "for a permanent node: format a directory, then `kafkacore start`",
    }
    if (Path(__file__).parents[3] / "Makefile").exists():  # a checkout, not an installed wheel
        steps["docs/testing.md, examples/"] = "a broker inside your own tests, and programs to copy"
        steps["make test"] = "similar checks with Apache Kafka's own clients and tools"
    width = max(map(len, steps)) + 3
    for step, what in steps.items():
        say(f"{step:<{width}}{what}")


def read_text(count: int) -> list[bytes]:
    """Returns `count` non-empty lines of the standard library's sources. Starts again from the first line if there are
    too few."""
    sources = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    lines = (line for path in sources if "site-packages" not in path.parts for line in _lines(path))
    text = list(itertools.islice(lines, count))
    if not text:
        raise DemoFailedError("this Python has no sources of its standard library to read")
    return list(itertools.islice(itertools.cycle(text), count))


def _lines(path: Path) -> Iterator[bytes]:
    yield from filter(None, path.read_bytes().splitlines())


def bulk(bootstrap: str, text: list[bytes]) -> None:
    """Lets confluent-kafka write the whole text, compressed, and read it back in order."""
    import confluent_kafka

    heading(f"confluent-kafka {confluent_kafka.version()} writes and reads all of it")
    create_topic(bootstrap, "text", PARTITIONS)
    began = time.perf_counter()
    writer = Writer(bootstrap, "text", PARTITIONS, {"compression.type": "lz4"})
    writer.write(text)
    report("written, lz4, acknowledged by all replicas", text, time.perf_counter() - began)
    began = time.perf_counter()
    for partition in range(PARTITIONS):
        check_same(read(bootstrap, "text", partition, len(text[partition::PARTITIONS])), text[partition::PARTITIONS])
    report("read back: every record unchanged and in order", text, time.perf_counter() - began)


async def aiokafka_reads_and_writes(bootstrap: str, text: list[bytes]) -> None:
    """Lets an independent client write and read a part of the text."""
    import aiokafka

    heading(f"aiokafka {aiokafka.__version__} does the same with {len(text):,} records")
    create_topic(bootstrap, "async", 1)
    began = time.perf_counter()
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip", linger_ms=5) as producer:
        sent = [await producer.send("async", line, partition=0) for line in text]
        await asyncio.gather(*sent)
    report("written, gzip", text, time.perf_counter() - began)
    began = time.perf_counter()
    found: list[bytes] = []
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        partition = aiokafka.TopicPartition("async", 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        while len(found) < len(text):
            batches = await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
            if not batches:
                raise DemoFailedError(f"aiokafka received {len(found):,} of {len(text):,} records, and then no more")
            found += [record.value for records in batches.values() for record in records]
    check_same(found, text)
    report("read back", text, time.perf_counter() - began)


def latency(bootstrap: str) -> None:
    """Measures single records: the time until the record is acknowledged, and until a waiting consumer receives it."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    heading(f"One record at a time, {LATENCY_SAMPLES:,} times")
    create_topic(bootstrap, "latency", 1)
    # These settings keep librdkafka from delaying small sends and delivery reports, so that the demo measures the node.
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "socket.nagle.disable": True})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False})
    consumer.assign([TopicPartition("latency", 0, 0)])
    acknowledged, arrived = [], []
    for _ in range(LATENCY_SAMPLES):
        began = time.perf_counter()
        producer.produce("latency", b"x" * 100, partition=0)
        if producer.flush(PATIENCE_S):
            raise DemoFailedError(f"a record was not acknowledged within {PATIENCE_S:.0f} s")
        acknowledged.append(time.perf_counter() - began)
        if consumer.poll(PATIENCE_S) is None:
            raise DemoFailedError(f"a record did not reach the consumer within {PATIENCE_S:.0f} s")
        arrived.append(time.perf_counter() - began)
    consumer.close()
    for what, samples in (("acknowledged", acknowledged), ("received by a waiting consumer", arrived)):
        cuts = statistics.quantiles(samples, n=100)
        say(f"{what:<44}half within {cuts[49] * 1000:.2f} ms, 99 of 100 within {cuts[98] * 1000:.2f} ms")


def share_and_take_over(bootstrap: str, text: list[bytes]) -> None:
    """Lets three members of a group read a topic together. Kills one of the members, and waits until the other two have
    taken over its partition."""
    heading(f"{MEMBERS} members of a group share {PARTITIONS} partitions, and one of them dies")
    create_topic(bootstrap, "shared", PARTITIONS)
    writer = Writer(bootstrap, "shared", PARTITIONS, {})
    third = len(text) // 3
    began = time.perf_counter()
    members = [Member(bootstrap, "shared", "readers") for _ in range(MEMBERS)]
    try:
        wait_for(
            lambda: sorted(each.partitions for each in members) == [[n] for n in range(PARTITIONS)], "a share each"
        )
        say(f"each has one partition, {time.perf_counter() - began:.1f} s after the first member started")
        writer.write(text[:third])
        wait_for(lambda: committed(members) == third, f"{third:,} records read by the group")
        say(f"together they have read {third:,} records and committed their offsets")
        victim = members.pop()
        victim.kill()
        began = time.perf_counter()
        writer.write(text[third:])
        wait_for(lambda: sum(len(each.partitions) for each in members) == PARTITIONS, "partitions taken over")
        say(
            f"pid {victim.pid} was killed; {time.perf_counter() - began:.1f} s later the others have taken over its "
            "partition"
        )
        wait_for(lambda: committed([victim, *members]) == len(text), "everything read")
        say(f"all {len(text):,} records have been read, and none was missed")
    finally:
        for member in members:
            member.kill()


def committed(members: list[Member]) -> int:
    """Returns the number of records that the group has committed in all partitions. For each partition, takes the
    greatest offset that any member has committed."""
    return sum(max(each.committed.get(str(partition), 0) for each in members) for partition in range(PARTITIONS))


class Member:
    """A consumer in its own process. The process prints its partitions and its committed offsets."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        command = [sys.executable, "-c", MEMBER, bootstrap, topic, group, str(SESSION_MS)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.pid = self._process.pid
        self.partitions: list[int] = []
        self.committed: dict[str, int] = {}
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = orjson.loads(line)
            self.partitions, self.committed = told["partitions"], told["committed"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


# The program of a member. If a rebalance happens after a read and before its commit, the next owner of the partition
# reads the same records again.
MEMBER: Final = """
import json, sys
from confluent_kafka import Consumer, KafkaException
bootstrap, topic, group, session_ms = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0,
    "enable.auto.commit": False, "session.timeout.ms": int(session_ms), "heartbeat.interval.ms": 200,
})
consumer.subscribe([topic])
committed, told = {}, ""
while True:
    if consumer.consume(1000, 0.1):
        try:
            done = consumer.commit(asynchronous=False)
        except KafkaException as error:
            print("a member of the group will read again:", error, file=sys.stderr)
        else:
            committed |= {each.partition: each.offset for each in done if each.error is None and each.offset > 0}
    partitions = sorted(each.partition for each in consumer.assignment())
    now = json.dumps({"partitions": partitions, "committed": committed})
    if now != told:
        print(now, flush=True)
        told = now
"""


def kill_and_recover(node: DemoNode, text: list[bytes]) -> None:
    """Kills the node after a third of the text, restarts it with the same directory, and counts the records."""
    heading("SIGKILL while a client produces")
    create_topic(node.bootstrap, "survivor", 1)
    writer = Writer(node.bootstrap, "survivor", 1, {"enable.idempotence": True, "linger.ms": 0})
    third = len(text) // 3
    writer.write(text[:third], flush=False)
    writer.wait_for(third // 2)
    middle = third + min(UNDER_WAY, third)
    writer.write(text[third:middle], flush=False)
    node.kill()
    before, under_way = len(writer.acknowledged), middle - len(writer.acknowledged)
    say(f"killed with {before:,} records acknowledged and {under_way:,} in flight")
    say(f"started again with the same files, ready in {node.start() * 1000:.0f} ms; the producer continues")
    writer.write(text[middle:])
    found = read(node.bootstrap, "survivor", 0, len(text))
    lost = [n for offset, n in writer.acknowledged.items() if found[offset] != text[n]]
    if lost:
        raise DemoFailedError(f"{len(lost):,} acknowledged records were lost, the first is line {lost[0]:,}")
    check_same(found, text)
    say(f"all {len(writer.acknowledged):,} acknowledged records are there, each once and in order: nothing was lost")
