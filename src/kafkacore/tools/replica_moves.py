"""Moves of replicas between the log directories of their brokers (KIP-113), for `kafkacore reassign-partitions`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.tools.admin import Admin, AdminError, check

RETRY_S: Final = 0.1


class ReplicaId(NamedTuple):
    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


Directories = dict[ReplicaId, str]


class Place(NamedTuple):
    """The log directory of a replica, and the directory to which its broker is moving the replica. Either is None if
    the broker reports no such directory."""

    current: str | None = None
    future: str | None = None


async def places_of(
    admin: Admin, replicas: Iterable[ReplicaId], patience_s: float | None = None
) -> dict[ReplicaId, Place]:
    """Asks each broker for the places of its replicas. A replica has an empty Place if its broker is not alive or does
    not answer within `patience_s`. Raises AdminError."""
    wanted = list(replicas)
    found = dict.fromkeys(wanted, Place())
    for broker_id, mine in _by_broker(wanted).items():
        made = DescribeLogDirsRequest
        topics = [
            made.DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in _by_topic(mine).items()
        ]
        try:
            async with asyncio.timeout(patience_s):
                answer = await admin.ask_broker(broker_id, made(topics=topics))
        except TimeoutError:
            continue
        if answer is None:
            continue
        check(answer.error_code, None)
        for directory in answer.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    replica = ReplicaId(topic.name, each.partition_index, broker_id)
                    if replica in found:
                        field = "future" if each.is_future_key else "current"
                        found[replica] = found[replica]._replace(**{field: directory.log_dir})
    return found


async def start(admin: Admin, directories: Mapping[ReplicaId, str], timeout_ms: int) -> None:
    """Starts the moves, and prints a line for each of them. If a broker does not have a replica yet, tries its move
    again until the timeout. Raises AdminError."""
    loop = asyncio.get_running_loop()
    deadline, left = loop.time() + timeout_ms / 1000, dict(directories)
    while True:
        for replica in sorted(await _begun(admin, left)):
            print(
                f"Successfully started moving log directory to {left.pop(replica)} for replica "
                f"{replica.topic}-{replica.partition} with broker {replica.broker_id} "
            )
        if not left:
            return
        if loop.time() >= deadline:
            late = ",".join(map(str, sorted(left)))
            many = "" if len(left) == 1 else "s"
            raise AdminError(f"Timed out before log directory move{many} could be started for: {late}")
        await asyncio.sleep(RETRY_S)


async def _begun(admin: Admin, directories: Mapping[ReplicaId, str]) -> list[ReplicaId]:
    """Returns the replicas whose brokers have accepted their moves."""
    begun = []
    for broker_id, mine in _by_broker(directories).items():
        answer = await admin.ask_broker(broker_id, _request({each: directories[each] for each in mine}))
        if answer is None:
            continue  # the broker is not alive
        for topic in answer.results:
            for each in topic.partitions:
                replica = ReplicaId(topic.topic_name, each.partition_index, broker_id)
                if not each.error_code:
                    begun.append(replica)
                elif each.error_code != ErrorCode.REPLICA_NOT_AVAILABLE:
                    raise AdminError(f"Failed to alter dir for {replica}: {error_for(error_of_peer(each.error_code))}")
    return begun


def _request(directories: Mapping[ReplicaId, str]) -> AlterReplicaLogDirsRequest:
    made = AlterReplicaLogDirsRequest
    by_path: dict[str, list[ReplicaId]] = {}
    for replica, path in directories.items():
        by_path.setdefault(path, []).append(replica)
    return made(
        dirs=[
            made.AlterReplicaLogDir(
                path=path,
                topics=[
                    made.AlterReplicaLogDirTopic(name=name, partitions=indexes)
                    for name, indexes in _by_topic(replicas).items()
                ],
            )
            for path, replicas in by_path.items()
        ]
    )


def line_of(replica: ReplicaId, target: str, place: Place) -> str:
    """Returns the line about a move that --verify prints, in the words of Kafka's tool."""
    partition = f"Partition {replica.topic}-{replica.partition}"
    if place.current is None:
        return (
            f"{partition} is not found in any live log dir on broker {replica.broker_id}. There is likely an offline "
            "log directory on the broker."
        )
    if place.future is None:
        if place.current == target:
            return f"Reassignment of replica {replica} completed successfully."
        return f"{partition} on broker {replica.broker_id} is not being moved from log dir {place.current} to {target}."
    if place.future == target:
        return f"Reassignment of replica {replica} is still in progress."
    return f"{partition} on broker {replica.broker_id} is being moved to log dir {place.future} instead of {target}."


def is_done(place: Place) -> bool:
    """Returns True if the replica is certainly not moving. This is also the case after its move was cancelled. Returns
    False if the replica is moving, if the broker did not answer, or if the broker reported no directory for the
    replica. The throttles of the move must then stay, as in Kafka's tool."""
    return place.current is not None and place.future is None


def _by_broker(replicas: Iterable[ReplicaId]) -> dict[int, list[ReplicaId]]:
    found: dict[int, list[ReplicaId]] = {}
    for each in sorted(replicas):
        found.setdefault(each.broker_id, []).append(each)
    return found


def _by_topic(replicas: Iterable[ReplicaId]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for each in replicas:
        found.setdefault(each.topic, []).append(each.partition)
    return found
