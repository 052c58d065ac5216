"""DescribeLogDirs: returns the partitions in each log directory, the free space on the directory's file system
(KIP-113, KIP-827), and whether the directory takes new replicas (KIP-1066)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafkacore.runtime.slices import Work, finish
from kafkacore.server.context import BrokerContext

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
Partition = DescribeLogDirsResponse.DescribeLogDirsPartition


async def handle(
    broker: BrokerContext, call: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = await finish(_wanted(request))
    response = DescribeLogDirsResponse()
    tells_cordoned = broker.image.metadata_version.cordoned_log_dirs_supported
    for path, serves, partitions in await finish(broker.logs.by_directory()):
        result = Result(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        response.results.append(result)
        if serves:
            try:
                # This runs on another thread, because a file system may be slow, above all a network file system.
                space = await asyncio.get_running_loop().run_in_executor(broker.blocking, os.statvfs, path)
            except OSError:
                continue
            result.error_code = ErrorCode.NONE
            result.total_bytes = space.f_blocks * space.f_frsize
            result.usable_bytes = space.f_bavail * space.f_frsize
            result.topics = await finish(_topics(broker, partitions, wanted))
            result.is_cordoned = tells_cordoned and broker.logs.is_cordoned(path)
    return response


def _wanted(request: DescribeLogDirsRequest) -> Work[set[tuple[str, int]]]:
    wanted = set()
    for topic in request.topics or ():
        for index in topic.partitions:
            wanted.add((topic.topic, index))
            yield
    return wanted


def _topics(
    broker: BrokerContext, partitions: Iterable[PartitionHandle], wanted: set[tuple[str, int]] | None
) -> Work[list[Topic]]:
    topics: dict[str, Topic] = {}
    for each in partitions:
        yield
        name, index = each.topic, each.index
        if wanted is None or (name, index) in wanted:
            topic = topics.get(name) or topics.setdefault(name, Topic(name=name))
            # The lag of a log says how far the log end is behind the high watermark. Only a follower that is catching
            # up has a lag. The lag of a future log says how far its log end is behind the log end of the current log.
            is_future = broker.logs.future_of(each) is each
            current = broker.replicas.by_name(name, index) if is_future else None
            behind = each.high_watermark if current is None else current.end_offset
            topic.partitions.append(
                Partition(
                    partition_index=index,
                    partition_size=each.size_bytes,
                    offset_lag=max(behind - each.end_offset, 0),
                    is_future_key=is_future,
                )
            )
    return list(topics.values())
