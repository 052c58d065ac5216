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
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kafkacore._fast.record.batch import Batches
from kafkacore.inspection.replicas import Batch, Compared, compare_directories, first_difference
from kafkacore.network.client import NodeClient
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchRequest, MetadataRequest
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.tools.admin import CLIENT_ID, Admin, AdminError, check, run_admin

DESCRIPTION: Final = (
    "Compares the replicas of partitions, on a live cluster or in the log directories of stopped brokers."
)
FETCH_VERSION: Final = 12  # the last version of Fetch that names topics
FETCH_BYTES: Final = 1 << 20
EARLIEST: Final = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="brokers of a live cluster")
    where.add_argument(
        "--directories", nargs="+", metavar="DIR", help="log directories of stopped brokers, one for each broker"
    )
    parser.add_argument("--topics-include", default=".*", metavar="REGEX", help="the topics to compare (default: all)")
    parser.add_argument("--fetch-size", type=int, default=FETCH_BYTES, metavar="BYTES", help="the limit of each Fetch")
    parser.add_argument("--max-wait-ms", type=int, default=1000, metavar="MS", help="the longest wait of each Fetch")
    parser.add_argument(
        "--report-interval-ms", type=int, default=0, metavar="MS", help="compare again after this time (0: once)"
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        wanted = re.compile(arguments.topics_include)
    except re.error as error:
        problem = f"--topics-include {arguments.topics_include!r} is not a regular expression: {error}"
        print(f"kafkacore: {problem}", file=sys.stderr)
        return 1
    try:
        print(f"{_now()}: verification process is started.")
        while True:
            sound = _report(_compared(arguments, wanted))
            if not sound or not arguments.report_interval_ms:
                return 0 if sound else 1
            time.sleep(arguments.report_interval_ms / 1000)
    except (AdminError, LogDirectoryError, OSError) as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1


def _compared(arguments: argparse.Namespace, wanted: re.Pattern[str]) -> Iterable[Compared]:
    if arguments.directories:
        return (each for each in compare_directories(arguments.directories) if wanted.fullmatch(each.topic))
    return run_admin(arguments, lambda admin: _compare_live(admin, arguments, wanted))


def _report(compared: Iterable[Compared]) -> bool:
    """Prints each difference, and Kafka's line about the lag. Returns False if any replicas differ."""
    count, sound, worst = 0, True, None
    for each in compared:
        count += 1
        if each.difference is not None:
            sound = False
            print(f"{_now()}: partition {each.topic}-{each.partition}: {each.difference}")
        if worst is None or each.lag > worst.lag:
            worst = each
    if worst is None:
        print(f"{_now()}: no partition has two replicas in these directories")
    else:
        where = f"{worst.topic}-{worst.partition} at offset {worst.end} among {count} partitions"
        print(f"{_now()}: max lag is {worst.lag} for partition {where}")
    return sound


def _now() -> str:
    milliseconds = time.time_ns() // 1_000_000
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds // 1000)) + f",{milliseconds % 1000:03}"


# --- a live cluster ---


async def _compare_live(admin: Admin, arguments: argparse.Namespace, wanted: re.Pattern[str]) -> list[Compared]:
    metadata = await admin.ask(MetadataRequest(topics=None))
    nodes = {each.node_id: NodeClient(each.host, each.port, CLIENT_ID) for each in metadata.brokers}
    try:
        found = []
        for topic in sorted(metadata.topics, key=lambda each: str(each.name)):
            if not wanted.fullmatch(topic.name):
                continue
            check(topic.error_code, None)
            for partition in sorted(topic.partitions, key=lambda each: int(each.partition_index)):
                if len(partition.replica_nodes) < 2:
                    continue
                found.append(await _compare_partition(topic.name, partition, nodes, arguments))
        return found
    finally:
        for node in nodes.values():
            await node.close()


async def _compare_partition(
    topic: str, partition: Any, nodes: Mapping[int, NodeClient], arguments: argparse.Namespace
) -> Compared:
    """Reads all replicas up to the lowest high watermark, and compares a digest of each batch."""
    place = topic, int(partition.partition_index)
    missing = [each for each in partition.replica_nodes if each not in nodes]
    if missing:
        return Compared(*place, 0, 0, f"replica {missing[0]} is not alive")
    try:
        looks = [await _fetch(nodes[each], place, EARLIEST, arguments) for each in partition.replica_nodes]
        start = max(look.log_start_offset for look in looks)
        marks = [look.high_watermark for look in looks]
        replicas = await asyncio.gather(
            *(_digests(nodes[each], place, start, min(marks), arguments) for each in partition.replica_nodes)
        )
    except OSError as error:
        return Compared(*place, 0, 0, f"a replica could not be read: {error}")
    named: dict[str, Iterator[Batch]] = {
        f"replica {node_id}": iter(batches) for node_id, batches in zip(partition.replica_nodes, replicas, strict=True)
    }
    return Compared(*place, min(marks), max(marks) - min(marks), first_difference(named, start, min(marks)))


async def _digests(
    node: NodeClient, place: tuple[str, int], start: int, end: int, arguments: argparse.Namespace
) -> list[Batch]:
    found: list[Batch] = []
    offset = start
    while offset < end:
        answer = await _fetch(node, place, offset, arguments)
        before = offset
        for batch in Batches(answer.records or b""):
            found.append(Batch(batch.base_offset, hashlib.blake2b(batch.data, digest_size=16).digest()))
            offset = batch.next_offset
        if offset == before:
            raise ConnectionError(
                f"{node.host}:{node.port} returns no batch of {place[0]}-{place[1]} at offset {offset}"
            )
    return found


async def _fetch(node: NodeClient, place: tuple[str, int], offset: int, arguments: argparse.Namespace) -> Any:
    """Fetches one partition as a consumer does. If `offset` is below the log start offset, fetches from the log start
    offset instead. Raises OSError."""
    topic, index = place
    for _ in range(2):
        asked = FetchRequest.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=arguments.fetch_size
        )
        request = FetchRequest(
            max_wait_ms=arguments.max_wait_ms if offset else 0,
            min_bytes=1,
            max_bytes=arguments.fetch_size,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[asked])],
        )
        answer = (await node.request(request, FETCH_VERSION)).responses[0].partitions[0]
        if answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE or answer.log_start_offset <= offset:
            break
        offset = answer.log_start_offset
    if answer.error_code:
        raise ConnectionError(f"{node.host}:{node.port}: {ErrorCode(answer.error_code).name} for {topic}-{index}")
    return answer
