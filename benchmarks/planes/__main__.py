"""`python -m benchmarks.planes`: how long the controller takes to answer while the data plane drowns.

Asked one at a time on the controller listener: BrokerHeartbeat of a broker that stays fenced, DescribeQuorum, a
committed CreateTopics; ApiVersions is reported and does not count. Idle, under 600 connections that produce (plain,
and gzip), under 600 connections that ask for Metadata of 10,000 partitions, ListOffsets and CreateTopics;
DescribeQuorum and CreateTopics also on the data listener itself, for comparison. Latencies in us, the median over
rounds; our own idle figures are the measure.
"""

import argparse
import contextlib
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

from kafkacore._fast.batch import RecordBatchBuilder
from kafkacore._fast.client import Load
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

KAFKACORE = Path(sys.executable).with_name("kafkacore")
FENCED_BROKER = 999
CONNECTIONS = 600
TOPIC, PARTITIONS = "load", 16
WIDE_TOPIC, WIDE_PARTITIONS = "wide", 9_990  # with its own record fewer than one request may make
WARM_UP = 100
CREATED = "c"


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
    """Metadata of the wide topic, ListOffsets of it, CreateTopics of one that exists."""
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


class Node:
    def __init__(self, directory):
        command = [KAFKACORE, "dev", "--json", "--dir", directory, "--with-parent", "--topic", f"{TOPIC}:{PARTITIONS}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        where = json.loads(self.process.stdout.readline())
        self.data, self.controller = (
            (host, int(port)) for host, port in (where[key].rsplit(":", 1) for key in ("bootstrap", "controller"))
        )
        wide = CreateTopicsRequest.CreatableTopic(name=WIDE_TOPIC, num_partitions=WIDE_PARTITIONS, replication_factor=1)
        [created] = self.ask(self.data, CreateTopicsRequest(topics=[wide], timeout_ms=30_000)).topics
        if created.error_code:
            raise RuntimeError(f"CreateTopics was answered with error {created.error_code}")

    def ask(self, address, request):
        """One answer's body."""
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
        """Registers a broker that asks to stay fenced; its heartbeat."""
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

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


@contextlib.contextmanager
def drowned(node, load):
    """600 connections in a process of their own."""
    if LOADS[load] is None:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.planes", "--drown", load, *map(str, node.data)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()


def drown(load, host, port):
    requests = LOADS[load]()
    made = Load(host, int(port), connections=CONNECTIONS)
    made.run(requests, seconds=1)
    print("drowning", flush=True)
    made.run(requests, seconds=3600)


def measure(address, requests, count, error_at=-1):
    """p50 and p99 in us, one request at a time."""
    load = Load(*address)
    load.run(requests[:WARM_UP], count=min(WARM_UP, len(requests)))
    result = load.run(requests[WARM_UP:] or requests, count=count, error_at=error_at, seconds=60)
    load.close()
    if result.broken or not result.requests:
        raise RuntimeError(f"{result!r}")
    return result.percentile_ns(0.5) / 1000, result.percentile_ns(0.99) / 1000


def rows(node, heartbeat, count, fresh):
    """Every kind of request once: (name, p50, p99)."""
    quorum = DescribeQuorumRequest.TopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    describe = [highest(DescribeQuorumRequest(topics=[quorum]))]
    software = ApiVersionsRequest(client_software_name="planes", client_software_version="1")
    created = max(count // 10, 20)

    def creations():
        return create_topics(f"{CREATED}{next(fresh)}" for _ in range(created + WARM_UP))

    yield "BrokerHeartbeat", *measure(node.controller, [heartbeat], count)
    yield "DescribeQuorum", *measure(node.controller, describe, count)
    yield "CreateTopics", *measure(node.controller, creations(), created)
    yield "ApiVersions", *measure(node.controller, [highest(software)], count)
    yield "DescribeQuorum, shared listener", *measure(node.data, describe, count)
    yield "CreateTopics, shared listener", *measure(node.data, creations(), created)


def table(figures, rounds):
    lines = [f"medians of {rounds} rounds, p50 / p99 in us", "", "| request | " + " | ".join(LOADS) + " |"]
    lines.append("|---" * (len(LOADS) + 1) + "|")
    for name in dict.fromkeys(name for name, _ in figures):
        cells = [
            " / ".join(f"{statistics.median(column):.0f}" for column in zip(*figures[name, load], strict=True))
            for load in LOADS
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planes", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=2000, help="requests of each kind; a tenth of it for CreateTopics")
    parser.add_argument("--directory", type=Path, default=Path("build/bench/planes"))
    parser.add_argument("--drown", nargs=3, metavar=("LOAD", "HOST", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drown:
        drown(*options.drown)
        return
    import itertools
    import shutil

    shutil.rmtree(options.directory, ignore_errors=True)
    node = Node(options.directory)
    figures = {}
    fresh = itertools.count()
    try:
        heartbeat = node.heartbeat()
        for number in range(options.rounds):
            for load in LOADS:
                with drowned(node, load):
                    for name, *latencies in rows(node, heartbeat, options.count, fresh):
                        figures.setdefault((name, load), []).append(latencies)
                        print(
                            f"{number} {load:<14}{name:<34}" + " / ".join(f"{each:.0f}" for each in latencies),
                            flush=True,
                        )
    finally:
        node.stop()
    print("\n" + table(figures, options.rounds))


if __name__ == "__main__":
    main()
