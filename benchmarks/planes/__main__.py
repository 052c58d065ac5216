"""`python -m benchmarks.planes` measures the controller's latency while the data plane is overloaded.

Requests go to the controller listener, one at a time: BrokerHeartbeat of a broker that stays fenced, DescribeQuorum, a
committed CreateTopics, and ApiVersions. Each of these requests except ApiVersions has an aim for its latency. The aims
relate to our own idle figures. DescribeQuorum and CreateTopics also go to the data listener, for comparison. There are
three kinds of load: none ("idle"); 600 connections that produce ("produce", "produce gzip"); 600 connections that send
Metadata requests for 10,000 partitions, ListOffsets and CreateTopics ("asking"). Latencies are medians over the rounds,
in us. `--brokers kafkacore apache-4.3` measures both brokers alternately.
"""

import argparse
import contextlib
import itertools
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.peers import requests
from benchmarks.peers.contestants import starters
from benchmarks.peers.report import conditions
from benchmarks.peers.rows import back_memory

from kafkacore._fast.base.thread_priority import enter_thread
from kafkacore._fast.plane.load_client import Load
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol import apis
from kafkacore.protocol.messages import (
    ApiVersionsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreateTopicsRequest,
    DescribeQuorumRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.features import supported_features
from processes import wait_until

FENCED_BROKER = 999
CONNECTIONS = 600
PAGE_CACHE_BYTES = 4 << 30  # more than a load writes
TOPIC, PARTITIONS = "load", 16
WIDE_TOPIC, WIDE_PARTITIONS = "wide", 9_990  # a request creates at most 10,000 records, one of them for the topic
WARM_UP = 100
CREATED = "c"
# The position of the first topic's error in a CreateTopics answer, for a name of this prefix and eight digits. The
# answer begins with the correlation id, tagged fields, throttle time, two lengths, the name and the topic id.
CREATED_ERROR_AT = 4 + 1 + 4 + 1 + 1 + 9 + 16


def framed(message, version):
    inside = apis.encode_request(version, 0, "planes", message)
    return struct.pack(">i", len(inside)) + inside


def highest(message):
    return framed(message, apis.api(message.API_KEY).highest)


def batch(codec, records=10, size_bytes=1000):
    builder = RecordBatchBuilder(codec=codec)
    for _ in range(records):
        builder.append(int(time.time() * 1000), None, os.urandom(size_bytes // 2) + b"x" * (size_bytes // 2))
    return builder.build()


def produce(codec):
    parts = ProduceRequest.PartitionProduceData
    records = batch(codec)
    return [
        framed(
            ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=[
                    ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[parts(index=index, records=records)])
                ],
            ),
            9,
        )
        for index in range(PARTITIONS)
    ]


def create_topics(names):
    return [
        highest(
            CreateTopicsRequest(
                topics=[CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
                timeout_ms=30_000,
            )
        )
        for name in names
    ]


def asking():
    """Returns Metadata and ListOffsets of the wide topic, and CreateTopics of a topic that exists."""
    wide = ListOffsetsRequest.ListOffsetsTopic(
        name=WIDE_TOPIC,
        partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(100)
        ],
    )
    metadata = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=WIDE_TOPIC)])
    return [framed(metadata, 9), framed(ListOffsetsRequest(replica_id=-1, topics=[wide]), 7), *create_topics([TOPIC])]


LOADS = {
    "idle": None,
    "produce": lambda: produce("none"),
    "produce gzip": lambda: produce("gzip"),
    "asking": asking,
}


class Loaded:
    """A broker with the topics of the loads. `wide` is the number of partitions in the Metadata requests. It can be
    less than 10,000, because other brokers take minutes to create that many."""

    def __init__(self, broker, wide):
        self.broker, self.wide = broker, wide
        self.data, self.controller = (
            (host, int(port)) for host, port in (each.rsplit(":", 1) for each in (broker.bootstrap, broker.controller))
        )
        for name, partitions in ((TOPIC, PARTITIONS), (WIDE_TOPIC, wide)):
            asked = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            [created] = self.ask(self.data, CreateTopicsRequest(topics=[asked], timeout_ms=30_000)).topics
            if created.error_code:
                raise RuntimeError(f"CreateTopics was answered with error {created.error_code}")
            wait_until(lambda: self.serves(name, partitions), 300, f"{name} serves")  # noqa: B023

    def serves(self, name, partitions):
        return requests.unserved(self.broker.bootstrap, {name: partitions}) == 0

    def ask(self, address, request):
        """Sends a request and returns the body of the answer."""
        from kafkacore.network.client import NodeClient

        async def once():
            client = NodeClient(*address, "planes")
            try:
                return await client.request(request)
            finally:
                await client.close()

        import asyncio

        return asyncio.run(once())

    def heartbeat(self):
        """Registers a broker that asks to stay fenced, and returns its heartbeat request."""
        listener = BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=1)
        levels = [
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=least, max_supported_version=most)
            for name, (least, most) in supported_features().items()
        ]
        answer = self.ask(
            self.controller,
            BrokerRegistrationRequest(
                broker_id=FENCED_BROKER,
                cluster_id=self.cluster_id(),
                incarnation_id=Uuid.random(),
                listeners=[listener],
                features=levels,
                log_dirs=[Uuid.random()],
            ),
        )
        if answer.error_code:
            raise RuntimeError(f"BrokerRegistration was answered with error {answer.error_code}")
        return highest(
            BrokerHeartbeatRequest(
                broker_id=FENCED_BROKER,
                broker_epoch=answer.broker_epoch,
                current_metadata_offset=0,
                want_fence=True,
            )
        )

    def cluster_id(self):
        return self.ask(self.data, MetadataRequest(topics=[])).cluster_id


@contextlib.contextmanager
def overloaded(node, load):
    """Runs the load's 600 connections in a separate process."""
    if LOADS[load] is None:
        yield
        return
    back_memory(PAGE_CACHE_BYTES)
    command = [sys.executable, "-m", "benchmarks.planes", "--overload", load, *map(str, node.data)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()


def overload(load, host, port):
    requests = LOADS[load]()
    made = Load(host, int(port), connections=CONNECTIONS)
    made.run(requests, seconds=1)
    print("under load", flush=True)
    made.run(requests, seconds=3600)


def measure(address, requests, count, error_at=-1):
    """Returns p50 and p99 in us, with one request at a time."""
    load = Load(*address)
    load.run(requests[:WARM_UP], count=min(WARM_UP, len(requests)))
    # The client represents another machine, so it must not wait for a core behind the load generator.
    with ThreadPoolExecutor(1, initializer=enter_thread, initargs=("planes", True)) as client:
        timed = requests[WARM_UP:] or requests
        result = client.submit(load.run, timed, count=count, error_at=error_at, seconds=60).result()
    load.close()
    if result.broken or result.errors or not result.requests:
        raise RuntimeError(f"{result!r}")
    return result.percentile_ns(0.5) / 1000, result.percentile_ns(0.99) / 1000


def syncs(path, count):
    """Returns p50 and p99 in us of the least disk work that a committed CreateTopics needs: a write of 100 bytes and a
    sync."""
    taken = []
    with path.open("wb", buffering=0) as file:
        for _ in range(count):
            began = time.perf_counter_ns()
            file.write(b"x" * 100)
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter_ns() - began) / 1000)
    path.unlink()
    cuts = statistics.quantiles(taken, n=100)
    return cuts[49], cuts[98]


def rows(node, heartbeat, count, fresh):
    """Returns one row for each kind of request: (name, p50, p99)."""
    quorum = DescribeQuorumRequest.TopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    describe = [highest(DescribeQuorumRequest(topics=[quorum]))]
    software = ApiVersionsRequest(client_software_name="planes", client_software_version="1")
    created = max(count // 10, 20)

    def creations():
        return create_topics(f"{CREATED}{next(fresh):08d}" for _ in range(created + WARM_UP))

    yield "BrokerHeartbeat", *measure(node.controller, [heartbeat], count)
    yield "DescribeQuorum", *measure(node.controller, describe, count)
    yield "CreateTopics", *measure(node.controller, creations(), created, CREATED_ERROR_AT)
    yield "a sync by itself", *syncs(node.broker.directory.with_name("sync"), created)
    yield "ApiVersions", *measure(node.controller, [highest(software)], count)
    yield "DescribeQuorum, shared listener", *measure(node.data, describe, count)
    yield "CreateTopics, shared listener", *measure(node.data, creations(), created, CREATED_ERROR_AT)


def table(figures, brokers):
    lines = ["| request | broker | " + " | ".join(LOADS) + " |", "|---|---" + "|---" * len(LOADS) + "|"]
    for name in dict.fromkeys(name for _, name, _ in figures):
        for broker in brokers:
            cells = [" / ".join(f"{each:.0f}" for each in middle(figures[broker, name, load])) for load in LOADS]
            lines.append(f"| {name} | {broker} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def middle(latencies):
    """Returns the medians of p50 and of p99 over the rounds."""
    return tuple(statistics.median(column) for column in zip(*latencies, strict=True))


def plot(figures, brokers, path):
    """Draws p99 by request and load on a logarithmic axis: a chart for each broker."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(name for _, name, _ in figures))
    canvas, axes = plt.subplots(1, len(brokers), figsize=(7 * len(brokers), 4.5), sharey=True, squeeze=False)
    for axis, broker in zip(axes.flat, brokers, strict=True):
        for at, load in enumerate(LOADS):
            heights = [middle(figures[broker, name, load])[1] for name in names]
            axis.bar([x + 0.2 * at for x in range(len(names))], heights, width=0.2, label=load)
        axis.set_yscale("log")
        middle_bar = 0.1 * (len(LOADS) - 1)
        axis.set_xticks([x + middle_bar for x in range(len(names))], names, rotation=20, ha="right", fontsize=7)
        axis.set_title(broker)
        axis.set_ylabel("p99 us")
    axes.flat[0].legend()
    canvas.tight_layout()
    canvas.savefig(path, dpi=120)


def write(out, figures, brokers, words):
    """Writes planes.md, planes.json and planes.png to `out`. Returns the text of the first file."""
    out.mkdir(parents=True, exist_ok=True)
    text = f"{words}; p50 / p99 in us.\n\n{table(figures, brokers)}"
    (out / "planes.md").write_text(text)
    flat = [
        {"broker": b, "request": name, "load": load, "p50_p99_us": each} for (b, name, load), each in figures.items()
    ]
    (out / "planes.json").write_text(json.dumps({"conditions": words, "figures": flat}, indent=1))
    plot(figures, brokers, out / "planes.png")
    return text


def measured(nodes, heartbeats, options):
    """Returns the [p50, p99] of each round for each broker, request and load."""
    figures, fresh = {}, itertools.count()
    for number in range(options.rounds):
        for load in LOADS:
            for broker, node in nodes.items():
                with overloaded(node, load):
                    for name, *latencies in rows(node, heartbeats[broker], options.count, fresh):
                        figures.setdefault((broker, name, load), []).append(latencies)
                        shown = " / ".join(f"{each:.0f}" for each in latencies)
                        print(f"{number} {broker:<12}{load:<14}{name:<34}{shown}", flush=True)
    return figures


def main():
    available = starters()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planes", description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", nargs="+", choices=available, default=["kafkacore"], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=2000, help="requests of each kind; a tenth as many CreateTopics")
    parser.add_argument("--wide", type=int, default=WIDE_PARTITIONS, help="partitions in the Metadata requests")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="the brokers' files go below it")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--overload", nargs=3, metavar=("LOAD", "HOST", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.overload:
        overload(*options.overload)
        return
    options.directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="planes-", dir=options.directory)).resolve()
    brokers = {}
    try:
        for name in options.brokers:
            brokers[name] = available[name](scratch / name)
        nodes = {name: Loaded(broker, options.wide) for name, broker in brokers.items()}
        heartbeats = {name: node.heartbeat() for name, node in nodes.items()}
        figures = measured(nodes, heartbeats, options)
    finally:
        for broker in brokers.values():
            broker.stop()
        shutil.rmtree(scratch)
    words = f"{conditions(options.rounds, options.directory)}, {CONNECTIONS} connections, {options.wide} partitions"
    print(write(options.out, figures, options.brokers, words))


if __name__ == "__main__":
    main()
