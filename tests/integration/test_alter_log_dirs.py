"""AlterReplicaLogDirs (KIP-113) moves partitions between the log directories of a running node."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode
from kafkacore.storage import names
from processes import wait_until
from two_directories import Directories

pytestmark = pytest.mark.timeout(90)
VALUE = b"v" * 20_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Directories]:
    with Directories(tmp_path, "log.segment.bytes=1048576") as made:
        made.create("t", 1)
        made.await_assigned("t", lambda assigned: "?" not in assigned)
        yield made


def other(name: str) -> str:
    return "b" if name == "a" else "a"


def kinds(node: Directories, name: str) -> list[names.Kind]:
    found = [names.parse_partition_directory(each.name) for each in sorted((node.path / name).iterdir())]
    return [one.kind for one in found if one is not None and one.topic == "t"]


def slow_down(node: Directories) -> None:
    """Throttles moves, so that a move lasts as long as a test needs."""
    node.broker.moves._limit = lambda: 50_000


def filled_and_slow(node: Directories) -> str:
    """Fills the partition, so that a throttled move takes long. Returns the directory of the partition."""
    source = node.directory_of("t", 0)
    for _ in range(20):
        assert node.produce("t", 0, VALUE) == 0
    slow_down(node)
    return source


def move(node: Directories, name: str, topic: str = "t") -> None:
    assert node.alter(topic, 0, f"{node.path}/{name}") == ErrorCode.NONE
    wait_until(lambda: node.directory_of(topic, 0) == name and not node.broker.moves._moves)


def test_partition_moves_while_it_is_written_and_read(node: Directories) -> None:
    source = node.directory_of("t", 0)
    ended = threading.Event()
    acknowledged: list[bytes] = []
    errors: list[int] = []

    def produce() -> None:
        while not ended.is_set():
            value = b"%d " % len(acknowledged) + VALUE
            error = node.produce("t", 0, value)
            errors.append(error)
            acknowledged.append(value)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        wait_until(lambda: len(acknowledged) > 100)
        for target in (other(source), source, other(source)):
            had = len(acknowledged)
            move(node, target)
            wait_until(lambda had=had: len(acknowledged) > had + 20)
            assert kinds(node, target).count(names.Kind.LIVE) == 1
    finally:
        ended.set()
        thread.join()
    assert set(errors) == {0}
    assert node.read("t", 0, len(acknowledged)) == acknowledged
    assert node.assigned("t") == [other(source)]
    node.stop()
    node.start()
    assert node.directory_of("t", 0) == other(source)
    assert node.read("t", 0, len(acknowledged)) == acknowledged


def test_move_is_shown_and_can_be_cancelled(node: Directories) -> None:
    source = filled_and_slow(node)
    target = f"{node.path}/{other(source)}"
    assert node.alter("t", 0, target) == node.alter("t", 0, target) == ErrorCode.NONE
    [(key, shown)] = wait_until(lambda: node.shown(other(source), "t").items())
    assert key == (0, True)
    assert shown.offset_lag > 0
    assert list(node.shown(source, "t")) == [(0, False)]
    wait_until(lambda: kinds(node, other(source)) == [names.Kind.FUTURE])
    assert node.alter("t", 0, f"{node.path}/{source}") == ErrorCode.NONE
    assert node.shown(other(source), "t") == {}
    assert kinds(node, other(source)) == [names.Kind.DELETE]
    assert (node.directory_of("t", 0), node.assigned("t"), node.produce("t", 0)) == (source, [source], 0)


def test_move_continues_after_a_restart(node: Directories) -> None:
    source = filled_and_slow(node)
    assert node.alter("t", 0, f"{node.path}/{other(source)}") == ErrorCode.NONE
    wait_until(lambda: kinds(node, other(source)) == [names.Kind.FUTURE])
    node.stop()
    assert kinds(node, other(source)) == [names.Kind.FUTURE]
    node.start()
    wait_until(lambda: node.directory_of("t", 0) == other(source))
    assert node.read("t", 0, 20) == [VALUE] * 20
    assert node.assigned("t") == [other(source)]


def test_controller_learns_the_new_directory_before_the_log_is_there(node: Directories) -> None:
    source = node.directory_of("t", 0)
    assert node.produce("t", 0) == 0
    manager: Any = node.broker._logs._manager
    known: list[list[str]] = []
    replace = manager.replace_with_future

    def noted(key: Any) -> None:
        node.await_assigned("t", lambda assigned: assigned == [other(source)])
        known.append(node.assigned("t"))
        replace(key)

    manager.replace_with_future = noted
    move(node, other(source))
    assert known == [[other(source)]]


def test_metadata_is_restored_when_the_last_step_of_a_move_fails(node: Directories) -> None:
    source = node.directory_of("t", 0)
    assert node.produce("t", 0) == 0
    manager: Any = node.broker._logs._manager
    seen: list[list[str]] = []

    def fails(key: Any) -> None:
        node.await_assigned("t", lambda assigned: assigned == [other(source)])
        seen.append(node.assigned("t"))
        raise OSError("the disk says no")

    manager.replace_with_future = fails
    assert node.alter("t", 0, f"{node.path}/{other(source)}") == ErrorCode.NONE
    wait_until(lambda: seen)
    node.await_assigned("t", lambda assigned: assigned == [source])
    assert (node.directory_of("t", 0), node.produce("t", 0)) == (source, 0)


def test_failed_move_is_tried_again_when_both_disks_serve(node: Directories) -> None:
    source = node.directory_of("t", 0)
    assert node.produce("t", 0) == 0
    manager: Any = node.broker._logs._manager
    replace, tries = manager.replace_with_future, []

    def fails_once(key: Any) -> None:
        tries.append(key)
        if len(tries) == 1:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        replace(key)

    manager.replace_with_future = fails_once
    node.broker.moves._backoff_ms = 1
    move(node, other(source))
    assert len(tries) == 2
    node.await_assigned("t", lambda assigned: assigned == [other(source)])
    assert node.produce("t", 0) == 0


def test_move_is_not_tried_again_when_it_is_cancelled_while_its_last_step_fails(node: Directories) -> None:
    source = node.directory_of("t", 0)
    assert node.produce("t", 0) == 0
    manager: Any = node.broker._logs._manager
    begun, go = threading.Event(), threading.Event()
    tries = []

    def fails(key: Any) -> None:
        tries.append(key)
        begun.set()
        assert go.wait(30)
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    manager.replace_with_future = fails
    node.broker.moves._backoff_ms = 1
    assert node.alter("t", 0, f"{node.path}/{other(source)}") == ErrorCode.NONE
    assert begun.wait(30)
    [under_way] = node.broker.moves._moves.values()
    with ThreadPoolExecutor(1) as asking:
        taken_back = asking.submit(node.alter, "t", 0, f"{node.path}/{source}")
        wait_until(lambda: under_way.ending)
        go.set()
        assert taken_back.result(30) == ErrorCode.NONE
    wait_until(lambda: not node.broker.moves._moves)
    assert len(tries) == 1
    node.await_assigned("t", lambda assigned: assigned == [source])
    assert (node.directory_of("t", 0), node.produce("t", 0)) == (source, 0)


def noted_assignments(node: Directories) -> list[str]:
    """Returns a list that gets each directory that the controller accepts from now on."""
    moves: Any = node.broker.moves
    tell, told = moves._assign, []

    async def noted(replica: Any, path: str) -> None:
        await tell(replica, path)
        told.append(Path(path).name)

    moves._assign = noted
    return told


def test_metadata_is_restored_when_a_move_is_cancelled_late(node: Directories) -> None:
    source = node.directory_of("t", 0)
    assert node.produce("t", 0) == 0
    told, futures = noted_assignments(node), node.broker._logs._manager.futures
    copy = futures.copy
    # Once the controller knows about the move, the copy never becomes complete.
    futures.copy = lambda key, max_bytes: copy(key, max_bytes) or (max_bytes if told else 0)
    assert node.alter("t", 0, f"{node.path}/{other(source)}") == ErrorCode.NONE
    node.await_assigned("t", lambda assigned: assigned == [other(source)])
    assert node.alter("t", 0, f"{node.path}/{source}") == ErrorCode.NONE
    node.await_assigned("t", lambda assigned: assigned == [source])
    assert (node.directory_of("t", 0), node.produce("t", 0)) == (source, 0)


def test_partition_stays_when_the_disk_of_its_future_log_fails(node: Directories) -> None:
    source = filled_and_slow(node)
    assert node.alter("t", 0, f"{node.path}/{other(source)}") == ErrorCode.NONE
    wait_until(lambda: kinds(node, other(source)) == [names.Kind.FUTURE])
    node.fail(other(source))
    wait_until(lambda: node.describe()[other(source)].error_code == ErrorCode.KAFKA_STORAGE_ERROR)
    assert node.produce("t", 0) == 0
    wait_until(lambda: node.broker.moves._moves == {})
    # While a directory is offline, no new move starts.
    assert node.alter("t", 0, f"{node.path}/{other(source)}") == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.faults == []


def test_metadata_is_restored_when_the_disk_of_a_future_log_fails_late(node: Directories) -> None:
    source = node.directory_of("t", 0)
    assert node.produce("t", 0) == 0
    told, futures = noted_assignments(node), node.broker._logs._manager.futures
    copy = futures.copy

    def copy_late(key: Any, max_bytes: int) -> int:
        if told:
            node.fail(other(source))
            wait_until(lambda: futures.get(key) is None)
        return copy(key, max_bytes)

    futures.copy = copy_late
    assert node.alter("t", 0, f"{node.path}/{other(source)}") == ErrorCode.NONE
    node.await_assigned("t", lambda assigned: told[:2] == [other(source), source] and assigned == [source])
    wait_until(lambda: node.describe()[other(source)].error_code == ErrorCode.KAFKA_STORAGE_ERROR)
    lifecycle = node.broker.registrar.lifecycle
    wait_until(lambda: True in lifecycle.offline_log_dirs.values())
    assert node.produce("t", 0) == 0, "the replica must stay online when the controller learns of the failed disk"
    assert (node.directory_of("t", 0), node.faults) == (source, [])


def test_move_ends_when_its_topic_is_deleted(node: Directories) -> None:
    source = filled_and_slow(node)
    assert node.alter("t", 0, f"{node.path}/{other(source)}") == ErrorCode.NONE
    wait_until(lambda: kinds(node, other(source)) == [names.Kind.FUTURE])
    node.delete("t")
    wait_until(lambda: kinds(node, source) == kinds(node, other(source)) == [names.Kind.DELETE])
    wait_until(lambda: node.broker.moves._moves == {})
    node.create("t", 1)
    assert (node.produce("t", 0), node.read("t", 0, 1)) == (0, [b"x"])


def test_truncated_log_goes_on_while_the_broker_stops(node: Directories) -> None:
    """Otherwise a move of this log, and with it the stop of the broker, could wait without end."""
    for _ in range(3):
        assert node.produce("t", 0) == 0
    builder = RecordBatchBuilder(base_offset=1)
    builder.append(timestamp=0, key=None, value=b"v")
    broker, went_on = node.broker, []
    log, stop = broker.replicas.by_name("t", 0), broker.stop
    assert log.flush()
    broker._logs._manager.checkpoint_recovery_points()

    async def stop_slowly(*limits: int) -> None:
        log.truncate_to(1)
        append = asyncio.to_thread(log.append_replicated, builder.build(), log.leader_epoch)
        went_on.append(await asyncio.wait_for(append, 20))
        await stop(*limits)

    broker.stop = stop_slowly
    node.node.stop()
    assert [each.error for each in went_on] == [0]


def test_impossible_move_is_refused_as_in_kafka(node: Directories) -> None:
    assert node.alter("t", 0, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert node.alter("t", 7, f"{node.path}/a") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert node.alter("x" * 240, 0, f"{node.path}/a") == ErrorCode.INVALID_TOPIC_EXCEPTION
    here = node.directory_of("t", 0)
    assert node.alter("t", 0, f"{node.path}/{here}") == ErrorCode.NONE
    assert node.shown(other(here), "t") == {}


@pytest.mark.parametrize("name", ["a", "b"])
def test_directory_is_chosen_for_a_topic_before_it_exists(node: Directories, name: str) -> None:
    assert node.alter("later", 0, f"{node.path}/{name}") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node.create("later", 1)
    assert node.directory_of("later", 0) == name
    node.await_assigned("later", lambda assigned: assigned == [name])
    # The preferred directory is used only once. A topic that is created again goes to any directory that has room.
    assert node.broker._logs._preferred == {}
