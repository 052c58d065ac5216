"""The rows of the table. Each row is a function that puts a load on one broker for a moment and returns its figures."""

import functools
import itertools
import mmap
import os
import statistics
import struct
import sysconfig
import time
from pathlib import Path

from kafkacore._fast.plane.load_client import Load
from kafkacore._fast.record.batch import RecordBatchBuilder
from processes import thread_files, wait_until

from . import requests

FIRST_TIMESTAMP_MS = 1_700_000_000_000
RECORD_BYTES = 1000
BATCH_BYTES = 1_000_000
DIFFERENT_BATCHES = 64
PRODUCE_REQUESTS = 400
COMPRESSED_REQUESTS = 100
FETCH_REQUESTS = 1500
ROUND_TRIPS = 3000
IDLE_S = 2.0
END_TO_END = 500
END_TO_END_LIMIT_S = 5.0  # a broker that polls takes seconds to deliver a record
METADATA_PARTITIONS = 10_000
METADATA_REQUESTS = 30
PIPELINE_DEPTH = 5
TOPICS_IN_A_PRODUCE = 100
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
NUMBERS = itertools.count()


def processes(pid):
    """Returns a process and all of its descendants."""
    waiting = [pid]
    while waiting:
        yield (one := waiting.pop())
        waiting += [int(child) for (children,) in thread_files(one, "children") for child in children.split()]


def ticks_seconds(pid):
    """Returns the user and system time of a process tree, in steps of 10 ms. Includes threads and children that have
    ended."""
    total = 0
    for one in processes(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        total += sum(int(fields[at]) for at in (11, 12, 13, 14))
    return total / TICKS_PER_SECOND


def threads_seconds(pid):
    """Returns the user and system time of a process tree to the nanosecond, but only for threads that are alive."""
    return sum(int(times.split()[0]) for one in processes(pid) for (times,) in thread_files(one, "schedstat")) / 1e9


def rss_mib(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)


def with_cpu(work, *pids):
    """Returns the result of `work()`, and the CPU seconds that these brokers used meanwhile, including their
    spinning."""
    coarse, fine = sum(map(ticks_seconds, pids)), sum(map(threads_seconds, pids))
    result = work()
    coarse, fine = sum(map(ticks_seconds, pids)) - coarse, sum(map(threads_seconds, pids)) - fine
    # `fine` misses threads that ended meanwhile; `coarse` includes them.
    return result, coarse if coarse > fine * 1.05 + 0.05 else fine


def back_memory(size_bytes):
    """Touches and frees `size_bytes` of memory. Some pages of a virtual machine have no memory of the host, because the
    machine has never used them or has given them back. When the page cache first uses such a page, it causes a fault in
    the hypervisor, which costs ten times the broker's own work.
    """
    with mmap.mmap(-1, size_bytes) as memory:
        page = b"x" * mmap.PAGESIZE
        for _ in range(size_bytes // mmap.PAGESIZE):
            memory.write(page)


@functools.cache
def text():
    """Returns real text that is as long as all batches together."""
    wanted = DIFFERENT_BATCHES * BATCH_BYTES
    pieces, size = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" not in path.parts:
            pieces.append(path.read_bytes())
            size += len(pieces[-1])
            if size > wanted:
                break
    whole = b"".join(pieces)
    return (whole * (wanted // len(whole) + 1))[:wanted]


@functools.cache
def batches(codec, record_bytes=RECORD_BYTES):
    """Returns 64 different batches of about 1 MB before compression, each with its number of records."""
    count = (BATCH_BYTES - 1000) // (record_bytes + 20)
    made = []
    for number in range(DIFFERENT_BATCHES):
        builder = RecordBatchBuilder(codec=codec, limit_bytes=2 * BATCH_BYTES)
        for at in range(count):
            start = (number * count + at) * record_bytes % (len(text()) - record_bytes)
            builder.append(FIRST_TIMESTAMP_MS + at, None, text()[start : start + record_bytes])
        made.append(bytes(builder.build()))
    return made, count


def fresh_topic(broker, partitions=1):
    """Creates a topic and returns its name. A cluster of brokers places the topic itself, with its own
    `fresh_topic`."""
    if hasattr(broker, "fresh_topic"):
        return broker.fresh_topic(partitions)
    name = f"bench-{next(NUMBERS)}"
    requests.create(broker.bootstrap, [name], partitions)
    wait_until(lambda: requests.unserved(broker.bootstrap, {name: partitions}) == 0, 60, f"{name} serves")
    return name


def pids(broker):
    """Returns the processes whose CPU time counts: one process, or all processes of a cluster."""
    return broker.pids if hasattr(broker, "pids") else (broker.pid,)


def load(broker, **options):
    host, port = broker.bootstrap.rsplit(":", 1)
    return Load(host, int(port), **options)


def checked(result, expected):
    if result.errors or result.broken or result.requests != expected:
        raise RuntimeError(f"{result.requests} of {expected} answered, {result.errors} errors, {result.broken} broken")
    return result


def produce(broker, codec, count):
    made, records = batches(codec)
    topic = fresh_topic(broker)
    sent = [requests.produce(topic, 0, batch) for batch in made]
    client = load(broker, depth=PIPELINE_DEPTH)
    back_memory(2 * count * len(sent[0]))
    result, cpu_s = with_cpu(
        lambda: client.run(sent, count=count, error_at=requests.produce_error_at(topic)), *pids(broker)
    )
    client.close()
    checked(result, count)
    requests.delete(broker.bootstrap, topic)
    elapsed_s = result.elapsed_ns / 1e9
    size_mb = count * sum(map(len, made)) / len(made) / 1e6
    return {
        "MB/s": size_mb / elapsed_s,
        "MB/s per CPU-s": size_mb / cpu_s,
        "Mrec/s per CPU-s": count * records / cpu_s / 1e6,
        "client share of a core": result.cpu_ns / result.elapsed_ns,
    }


def produce_plain(broker):
    return produce(broker, "none", PRODUCE_REQUESTS)


def produce_lz4(broker):
    return produce(broker, "lz4", COMPRESSED_REQUESTS)


def produce_zstd(broker):
    return produce(broker, "zstd", COMPRESSED_REQUESTS)


def produce_gzip(broker):
    return produce(broker, "gzip", COMPRESSED_REQUESTS)


def fetch(broker):
    made, _ = batches("none")
    topic = fresh_topic(broker)
    client = load(broker, depth=1)
    sent = [requests.produce(topic, 0, batch) for batch in made]
    checked(client.run(sent, count=len(sent), error_at=requests.produce_error_at(topic)), len(sent))
    client.close()
    records = batches("none")[1]
    asked = [requests.fetch(topic, 0, number * records, 1 << 20) for number in range(len(made))]
    client = load(broker, depth=PIPELINE_DEPTH, discard=True)
    result, cpu_s = with_cpu(
        lambda: client.run(asked, count=FETCH_REQUESTS, error_at=requests.fetch_error_at(topic)), broker.pid
    )
    client.close()
    checked(result, FETCH_REQUESTS)
    requests.delete(broker.bootstrap, topic)
    size_mb = result.received_bytes / 1e6
    return {"MB/s": size_mb / (result.elapsed_ns / 1e9), "MB/s per CPU-s": size_mb / cpu_s}


def round_trip(broker, count=ROUND_TRIPS):
    topic = fresh_topic(broker)
    request = requests.produce(topic, 0, one_record())
    client = load(broker, depth=1)
    where = requests.produce_error_at(topic)
    checked(client.run([request], count=200, error_at=where), 200)
    result, cpu_s = with_cpu(lambda: client.run([request], count=count, error_at=where), *pids(broker))
    client.close()
    checked(result, count)
    return {
        "p50 us": result.percentile_ns(0.5) / 1000,
        "p99 us": result.percentile_ns(0.99) / 1000,
        "CPU us a request": cpu_s / count * 1e6,
    }


def end_to_end(broker):
    """Measures the time from the first byte of a Produce to the answer of a waiting Fetch, on two plain sockets."""
    topic = fresh_topic(broker)
    batch = one_record()
    writer, reader = requests.Connection(broker.bootstrap), requests.Connection(broker.bootstrap)
    taken, deadline = [], time.monotonic() + END_TO_END_LIMIT_S
    for offset in range(END_TO_END):
        if time.monotonic() > deadline:
            break
        reader.send(requests.fetch(topic, 0, offset, 1 << 20, wait_ms=5000))
        # The Fetch must be parked before the record arrives. No answer shows that, so the client waits a moment.
        time.sleep(0.002)
        began = time.perf_counter()
        writer.send(requests.produce(topic, 0, batch))
        answer = reader.receive()
        taken.append(time.perf_counter() - began)
        assert len(answer) > len(batch), "a Fetch returned no record"
        writer.receive()
    writer.close()
    reader.close()
    cuts = statistics.quantiles(taken, n=100)
    return {"p50 ms": cuts[49] * 1000, "p99 ms": cuts[98] * 1000}


def create_topics(broker):
    """Creates 900 topics of 10 partitions in one request. Measures the time until the answer, until every partition
    serves requests, and until every partition has a record."""
    names = [f"many-{next(NUMBERS)}" for _ in range(900)]
    began = time.perf_counter()
    requests.create(broker.bootstrap, names, 10)
    answered = time.perf_counter()
    wanted = dict.fromkeys(names, 10)
    wait_until(lambda: requests.unserved(broker.bootstrap, wanted) == 0, 180, "every partition serves")
    served = time.perf_counter()
    first_records(broker, list(wanted.items()))
    return {
        "answered s": answered - began,
        "serving s": served - began,
        "first records acknowledged s": time.perf_counter() - began,
    }


def first_records(broker, topics):
    """Produces a record to each partition, with 1,000 partitions in each request, because producers also send several
    batches in a request."""
    record = one_record()
    connection = requests.Connection(broker.bootstrap)
    parts = [topics[at : at + TOPICS_IN_A_PRODUCE] for at in range(0, len(topics), TOPICS_IN_A_PRODUCE)]
    for number, part in enumerate(parts):
        connection.send(requests.produce_to_all(part, record))
        if number >= PIPELINE_DEPTH - 1:
            acknowledged(connection)
    for _ in parts[-(PIPELINE_DEPTH - 1) :]:
        acknowledged(connection)
    connection.close()


def acknowledged(connection):
    if failed := requests.unacknowledged(connection.receive()):
        raise RuntimeError(f"{failed} partitions refused their first record")


def one_record():
    builder = RecordBatchBuilder()
    builder.append(FIRST_TIMESTAMP_MS, None, b"x" * 100)
    return bytes(builder.build())


def metadata(broker):
    """Requests the metadata of topics that have 10,000 partitions together."""
    name = f"wide-{next(NUMBERS)}"
    names = [f"{name}-{part}" for part in range(10)]
    for one in names:
        requests.create(broker.bootstrap, [one], METADATA_PARTITIONS // len(names))
    client = load(broker, depth=1, discard=True)
    asked = [requests.metadata(*names)]
    client.run(asked, count=3)
    result, cpu_s = with_cpu(lambda: client.run(asked, count=METADATA_REQUESTS), broker.pid)
    client.close()
    checked(result, METADATA_REQUESTS)
    partitions = METADATA_REQUESTS * METADATA_PARTITIONS
    return {"ns a partition": result.elapsed_ns / partitions, "CPU ns a partition": cpu_s / partitions * 1e9}


def librdkafka(broker):
    """Checks our own load generator against a widely used client, on the same broker."""
    from confluent_kafka import Producer

    topic = fresh_topic(broker)
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.size": 1_000_000, "log_level": 0,
        "queue.buffering.max.messages": 200_000, "api.version.request": True,
    })  # fmt: skip
    value, count = b"x" * RECORD_BYTES, 100_000

    def send():
        began = time.perf_counter()
        for _ in range(count):
            producer.produce(topic, value, partition=0)
        left = producer.flush(60)
        if left:
            raise RuntimeError(f"{left} records were not acknowledged")
        return time.perf_counter() - began

    elapsed_s, cpu_s = with_cpu(send, broker.pid)
    requests.delete(broker.bootstrap, topic)
    size_mb = count * RECORD_BYTES / 1e6
    return {"MB/s": size_mb / elapsed_s, "MB/s per CPU-s": size_mb / cpu_s}


def memory(broker):
    """Measures the resident set, and the CPU time during some seconds without a request."""
    _, cpu_s = with_cpu(lambda: time.sleep(IDLE_S), broker.pid)
    return {"RSS MiB": rss_mib(broker.pid), "% of a core": cpu_s / IDLE_S * 100}


def api_versions_answered(address):
    """Returns whether the broker answers ApiVersions now."""
    try:
        body = requests.call(address, requests.frame(requests.API_VERSIONS, 0, b""), timeout_s=2)
    except OSError:
        return False
    return struct.unpack(">h", body[:2])[0] == requests.NO_ERROR


# Each entry maps a name to (title, the figure that the plot shows, function). The last rows leave topics in the broker.
ROWS = {
    "idle": ("idle", "RSS MiB", memory),
    "produce": ("produce 1 KB records in 1 MB batches, 5 in flight", "MB/s per CPU-s", produce_plain),
    "produce-lz4": ("the same, lz4", "Mrec/s per CPU-s", produce_lz4),
    "produce-zstd": ("the same, zstd", "Mrec/s per CPU-s", produce_zstd),
    "produce-gzip": ("the same, gzip", "Mrec/s per CPU-s", produce_gzip),
    "fetch": ("fetch 1 MiB, 5 in flight", "MB/s per CPU-s", fetch),
    "round-trip": ("produce 100 B, acks=all, one at a time", "p50 us", round_trip),
    "end-to-end": ("delivery of a new record to a waiting Fetch", "p50 ms", end_to_end),
    "librdkafka": ("cross-check: librdkafka produces 1 KB records", "MB/s per CPU-s", librdkafka),
    "metadata": ("Metadata of 10,000 partitions", "ns a partition", metadata),
    "create-topics": ("CreateTopics 900 x 10", "first records acknowledged s", create_topics),
}
ONCE = {"metadata", "create-topics"}
