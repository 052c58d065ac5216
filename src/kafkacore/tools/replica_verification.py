"""`kafkacore replica-verification`: compares the replicas of partitions, batch by batch below the high watermark.

On a live cluster, the command reads each partition from all its replicas, as kafka-replica-verification.sh does. It
compares only once, unless --report-interval-ms is given. If the brokers are stopped, the command reads their log
directories.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kafkacore._fast.record.batch import Batches
from kafkacore.inspection.replicas import Batch, Compared, compare_directories, first_difference
from kafkacore.network.client import NodeClient
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchRequest, ListOffsetsRequest, Message, MetadataRequest
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.tools.admin import CLIENT_ID, Admin, AdminError, check, run_admin
from kafkacore.tools.numbers import INT_MAX, whole_number

DESCRIPTION: Final = (
    "Compares the replicas of partitions, on a live cluster or in the log directories of stopped brokers."
)
FETCH_VERSION: Final = 12  # the last version of Fetch that names topics
FETCH_BYTES: Final = 1 << 20
LIST_OFFSETS_VERSION: Final = 4
EARLIEST: Final = 0
EARLIEST_TIMESTAMP: Final = -2
ANY_REPLICA: Final = -2  # the replica id of a client that asks a follower


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="brokers of a live cluster")
    where.add_argument(
        "--directories", nargs="+", metavar="DIR", help="log directories of stopped brokers, one for each broker"
    )
    parser.add_argument("--topics-include", default=".*", metavar="REGEX", help="the topics to compare (default: all)")
    parser.add_argument(
        "--fetch-size",
        type=whole_number(1, INT_MAX),
        default=FETCH_BYTES,
        metavar="BYTES",
        help="the limit of each Fetch",
    )
    parser.add_argument(
        "--max-wait-ms",
        type=whole_number(0, INT_MAX),
        default=1000,
        metavar="MS",
        help="the longest wait of each Fetch",
    )
    parser.add_argument(
        "--report-interval-ms",
        type=whole_number(0, INT_MAX),
        default=0,
        metavar="MS",
        help="compare again after this time (0: once)",
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        wanted = re.compile(arguments.topics_include)
    except re.error as error:
        problem = f"--topics-include {arguments.topics_include!r} is not a regular expression: {error}"
        print(f"kafkacore: {problem}", file=sys.stderr)
        return 1
    try:
        print(f"{_now()}: verification process is started")
        while True:
            sound = report(_compared(arguments, wanted))
            if not sound or not arguments.report_interval_ms:
                return 0 if sound else 1
            time.sleep(arguments.report_interval_ms / 1000)
    except AdminError as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1


def _compared(arguments: argparse.Namespace, wanted: re.Pattern[str]) -> Iterable[Compared]:
    if arguments.directories:
        return (each for each in compare_directories(arguments.directories) if wanted.fullmatch(each.topic))
    return run_admin(arguments, lambda admin: _compare_live(admin, arguments, wanted))


def report(compared: Iterable[Compared]) -> bool:
    """Prints each difference, and Kafka's line about the lag. Returns False if any replicas differ, or if there was
    nothing to compare."""
    count, sound, most, worst = 0, True, -1, None
    for each in compared:
        count += 1
        if each.difference is not None:
            sound = False
            print(f"{_now()}: partition {each.topic}-{each.partition}: {each.difference}")
        if each.lag is not None and each.lag > most:
            most, worst = each.lag, each
    if worst is not None:
        where = f"{worst.topic}-{worst.partition} at offset {worst.end} among {count} partitions"
        print(f"{_now()}: max lag is {most} for partition {where}")
    if not count:
        print(f"{_now()}: no partition has two replicas in these directories")
    return sound and count > 0


def _now() -> str:
    milliseconds = time.time_ns() // 1_000_000
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds // 1000)) + f",{milliseconds % 1000:03}"


# --- a live cluster ---


async def _compare_live(admin: Admin, arguments: argparse.Namespace, wanted: re.Pattern[str]) -> list[Compared]:
    metadata = await admin.ask(MetadataRequest(topics=None))
    topics = [topic for topic in metadata.topics if wanted.fullmatch(topic.name)]
    if not topics:
        raise AdminError(f"No topics found. --topics-include {wanted.pattern!r} matches none of the cluster's topics.")
    nodes = {each.node_id: NodeClient(each.host, each.port, CLIENT_ID) for each in metadata.brokers}
    try:
        found = []
        for topic in sorted(topics, key=lambda each: str(each.name)):
            check(topic.error_code, f"Topic {topic.name}: {error_of_peer(topic.error_code).message}")
            for partition in sorted(topic.partitions, key=lambda each: int(each.partition_index)):
                place = Place(topic.name, partition.partition_index)
                found.append(await compare_replicas(place, partition.replica_nodes, nodes, arguments))
        return found
    finally:
        for node in nodes.values():
            await node.close()


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Node(Protocol):
    """A connection to a broker. `network.client.NodeClient` implements this."""

    host: str
    port: int

    async def request(self, message: Message, version: int, /) -> Any: ...


async def compare_replicas(
    place: Place, replicas: Sequence[int], nodes: Mapping[int, Node], arguments: argparse.Namespace
) -> Compared:
    """Reads all replicas up to the lowest high watermark, and compares a digest of each batch. Records that a broker
    deletes meanwhile are not compared."""
    missing = [each for each in replicas if each not in nodes]
    if missing:
        return Compared(*place, 0, None, f"replica {missing[0]} is not alive")
    try:
        looks = [await _fetch_from(nodes[each], place, EARLIEST, arguments) for each in replicas]
        marks = [look.high_watermark for _, look in looks]
        start, end = max(max(at, look.log_start_offset) for at, look in looks), min(marks)
        # If a partition has only one replica, there is nothing to compare. The partition counts as compared, as in
        # Apache Kafka's tool.
        read = replicas if len(replicas) > 1 else ()
        digests = await asyncio.gather(*(_digests(nodes[each], place, start, end, arguments) for each in read))
    except OSError as error:
        return Compared(*place, 0, None, f"a replica could not be read: {error}")
    named: dict[str, Iterator[Batch]] = {
        f"replica {node_id}": iter(batches) for node_id, (_, batches) in zip(read, digests, strict=True)
    }
    start = max([start, *(at for at, _ in digests)])
    return Compared(*place, end, max(marks) - end, first_difference(named, start, end) if named else None)


async def _digests(
    node: Node, place: Place, start: int, end: int, arguments: argparse.Namespace
) -> tuple[int, list[Batch]]:
    """Returns the digests of a replica's batches from `start` up to `end`, and the offset from which the digests are
    complete. This offset is above `start` if the broker has deleted records meanwhile."""
    found: list[Batch] = []
    offset = start
    while offset < end:
        before = offset
        offset, answer = await _fetch_from(node, place, before, arguments)
        if offset > before:
            start = offset
        for batch in Batches(answer.records or b""):
            found.append(Batch(batch.base_offset, hashlib.blake2b(batch.data, digest_size=16).digest()))
            offset = batch.next_offset
        if offset == before:
            raise ConnectionError(f"{node.host}:{node.port} returns no batch of {_named(place)} at offset {offset}")
    return start, found


async def _fetch_from(node: Node, place: Place, offset: int, arguments: argparse.Namespace) -> tuple[int, Any]:
    """Fetches one partition as a consumer does. If the broker has deleted the records at `offset`, fetches from the
    broker's log start offset instead. Returns the offset and the answer. Raises OSError."""
    while True:
        answer = await _fetch(node, place, offset, arguments)
        if answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            break
        # The response with the error OFFSET_OUT_OF_RANGE does not contain the log start offset.
        log_start_offset = await _log_start_offset(node, place)
        if log_start_offset <= offset:
            break
        offset = log_start_offset
    _check(node, place, answer.error_code)
    return offset, answer


async def _fetch(node: Node, place: Place, offset: int, arguments: argparse.Namespace) -> Any:
    asked = FetchRequest.FetchPartition(
        partition=place.partition, fetch_offset=offset, partition_max_bytes=arguments.fetch_size
    )
    request = FetchRequest(
        max_wait_ms=arguments.max_wait_ms if offset else 0,
        min_bytes=1,
        max_bytes=arguments.fetch_size,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=place.topic, partitions=[asked])],
    )
    return (await node.request(request, FETCH_VERSION)).responses[0].partitions[0]


async def _log_start_offset(node: Node, place: Place) -> int:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=place.partition, timestamp=EARLIEST_TIMESTAMP)
    request = ListOffsetsRequest(
        replica_id=ANY_REPLICA,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=place.topic, partitions=[asked])],
    )
    answer = (await node.request(request, LIST_OFFSETS_VERSION)).topics[0].partitions[0]
    _check(node, place, answer.error_code)
    offset: int = answer.offset
    return offset


def _check(node: Node, place: Place, code: int) -> None:
    if code:
        raise ConnectionError(f"{node.host}:{node.port}: {error_of_peer(code).name} for {_named(place)}")


def _named(place: Place) -> str:
    return f"{place.topic}-{place.partition}"
