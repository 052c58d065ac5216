"""The logs that a broker finds when it starts, compared with the committed metadata."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.world.environment import Environment
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.protocol.messages import FeatureLevelRecord, PartitionRecord, TopicRecord
from kafkacore.protocol.uuid import UNASSIGNED_DIRECTORY, Uuid
from kafkacore.runtime.slices import Work
from kafkacore.server.broker_logs import BrokerLogs
from kafkacore.storage import checkpoints, names, partition_metadata
from kafkacore.storage.log_manager import LogManager
from kafkacore.storage.log_upkeep import LogUpkeep

ME = 1
KEY = ("orders", 0)
TOPIC_ID, EARLIER_ID = Uuid(b"t" * 16), Uuid(b"e" * 16)
HERE, THERE = Uuid(b"h" * 16), Uuid(b"g" * 16)
SETTINGS = LogSettings()
LIMIT_S = 30


@pytest.fixture
def paths(tmp_path: Path) -> dict[Uuid, str]:
    made = {HERE: str(tmp_path / "here"), THERE: str(tmp_path / "there")}
    for path in made.values():
        os.mkdir(path)
    return made


def image_of_one(directory: Uuid, topic_id: Uuid = TOPIC_ID, node: int = ME) -> MetadataImage:
    publisher = MetadataPublisher()
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        TopicRecord(name=KEY[0], topic_id=topic_id),
        PartitionRecord(
            topic_id=topic_id, partition_id=KEY[1], replicas=[node], isr=[node], leader=node, directories=[directory]
        ),
    ]
    publisher.apply(records, 1, 1, 1)
    return publisher.image


@pytest.fixture
def image() -> MetadataImage:
    return image_of_one(HERE)


@pytest.fixture
def blocking() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def leave_a_move_half_done(paths: dict[Uuid, str]) -> str:
    """Makes a log of three records, and its future log in the other directory. Returns the path of the future log."""
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    manager.load()
    [handle] = manager.create(KEY[0], TOPIC_ID, [KEY[1]], paths[HERE])
    handle.become_leader(ME, 0)
    builder = RecordBatchBuilder()
    for _ in range(3):
        builder.append(0, None, b"value")
    assert handle.append(builder.build()).error == 0
    manager.create_future(KEY, paths[THERE])
    manager.futures.copy(KEY, 1 << 20)
    [future] = manager.futures.all()
    manager.close()
    return future.path


def test_partitions_of_the_directories_are_listed_one_at_a_time(
    paths: dict[Uuid, str], blocking: ThreadPoolExecutor
) -> None:
    leave_a_move_half_done(paths)
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    manager.load()
    manager.create("many", TOPIC_ID, range(100), paths[THERE])
    seen: list[tuple[str, bool, list[PartitionHandle]]] = []

    def listing() -> Work[None]:
        seen.extend((yield from BrokerLogs(manager, paths, blocking).by_directory()))

    assert sum(1 for _ in listing()) == 102
    assert [(path, serves) for path, serves, _ in seen] == [(paths[HERE], True), (paths[THERE], True)]
    here, there = ([each.topic for each in partitions] for _, _, partitions in seen)
    assert here == ["orders"]
    assert sorted(there) == ["many"] * 100 + ["orders"]
    manager.close()


@pytest.mark.parametrize("topic_id", [None, EARLIER_ID])
def test_stray_future_log_leaves_the_log_in_use_alone(
    paths: dict[Uuid, str], image: MetadataImage, blocking: ThreadPoolExecutor, topic_id: Uuid | None
) -> None:
    future = leave_a_move_half_done(paths)
    # This happens if a crash came before the file was written, or if the directory was offline when the topic was
    # created again.
    os.unlink(os.path.join(future, partition_metadata.NAME))
    if topic_id is not None:
        partition_metadata.write(future, topic_id)
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    BrokerLogs(manager, paths, blocking).load(image, ME)
    handle = manager.get(*KEY)
    assert handle is not None
    assert (handle.directory.path, handle.end_offset) == (paths[HERE], 3)
    assert manager.futures.all() == []
    [left] = [found for name in os.listdir(paths[THERE]) if (found := names.parse_partition_directory(name))]
    assert left.kind is names.Kind.STRAY
    manager.close()


def test_log_without_a_topic_id_is_put_aside_with_its_records(
    paths: dict[Uuid, str], image: MetadataImage, blocking: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    leave_a_move_half_done(paths)
    log = os.path.join(paths[HERE], names.partition_directory_name(*KEY))
    os.unlink(os.path.join(log, partition_metadata.NAME))
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    BrokerLogs(manager, paths, blocking).load(image, ME)
    [left] = [name for name in os.listdir(paths[HERE]) if name.endswith(names.Kind.STRAY.value)]
    assert os.path.getsize(os.path.join(paths[HERE], left, names.file_name(0, names.LOG))) > 0
    assert any(line.startswith(f"{log}: it has no partition.metadata") for line in caplog.messages)
    manager.close()


@pytest.mark.parametrize(
    "image",
    [
        MetadataPublisher().image,
        image_of_one(UNASSIGNED_DIRECTORY, topic_id=EARLIER_ID),
        image_of_one(HERE, node=ME + 1),
    ],
    ids=["no topic", "another topic", "another broker"],
)
def test_two_logs_of_one_partition_are_put_aside_when_the_partition_is_not_the_brokers(
    paths: dict[Uuid, str], image: MetadataImage, blocking: ThreadPoolExecutor
) -> None:
    """This happens if the node is killed between the two renames of a move, and the topic is deleted, or the replica
    reassigned, before the node starts again."""
    os.rename(leave_a_move_half_done(paths), os.path.join(paths[THERE], names.partition_directory_name(*KEY)))
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    BrokerLogs(manager, paths, blocking).load(image, ME)
    assert manager.get(*KEY) is None
    for path in paths.values():
        [left] = [found for name in os.listdir(path) if (found := names.parse_partition_directory(name))]
        assert left.kind is names.Kind.STRAY
        assert checkpoints.OffsetCheckpoint(path, checkpoints.RECOVERY_POINT).read() == {}
    manager.close()


@pytest.mark.parametrize("after", [(TOPIC_ID, ME + 1), (Uuid(b"n" * 16), ME)])
def test_log_and_its_future_log_are_deleted_when_the_replica_leaves_while_logs_are_loaded(
    paths: dict[Uuid, str], image: MetadataImage, blocking: ThreadPoolExecutor, after: tuple[Uuid, int]
) -> None:
    leave_a_move_half_done(paths)
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    logs = BrokerLogs(manager, paths, blocking)
    logs.load(image, ME)
    assert logs.delete_gone(image, ME) == set()
    assert manager.get(*KEY) is not None
    assert logs.delete_gone(image_of_one(HERE, *after), ME) == {KEY}
    blocking.submit(int).result()  # waits until the thread has deleted the logs
    assert (manager.get(*KEY), manager.futures.all()) == (None, [])
    for path in paths.values():
        [left] = [found for name in os.listdir(path) if (found := names.parse_partition_directory(name))]
        assert left.kind is names.Kind.DELETE
    manager.close()


def test_log_stays_when_the_other_log_of_its_partition_is_stray(
    paths: dict[Uuid, str], image: MetadataImage, blocking: ThreadPoolExecutor
) -> None:
    """The metadata still names the directory of the stray log."""
    leave_a_move_half_done(paths)
    name = names.partition_directory_name(*KEY)
    shutil.copytree(os.path.join(paths[HERE], name), os.path.join(paths[THERE], name))
    os.unlink(os.path.join(paths[HERE], name, partition_metadata.NAME))
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    BrokerLogs(manager, paths, blocking).load(image, ME)
    handle = manager.get(*KEY)
    assert handle is not None
    assert (handle.directory.path, handle.end_offset) == (paths[THERE], 3)
    manager.close()


@pytest.mark.parametrize("placed", [HERE, THERE])
def test_only_future_log_becomes_the_log_when_the_metadata_places_the_replica_there(
    paths: dict[Uuid, str], blocking: ThreadPoolExecutor, placed: Uuid
) -> None:
    leave_a_move_half_done(paths)
    shutil.rmtree(os.path.join(paths[HERE], names.partition_directory_name(*KEY)))
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    BrokerLogs(manager, paths, blocking).load(image_of_one(placed), ME)
    handle = manager.get(*KEY)
    # Until the move of the replica is complete, the future log may lack records, so it must not become the log of a
    # leader.
    assert (None if handle is None else (handle.directory.path, handle.end_offset)) == (
        (paths[THERE], 3) if placed == THERE else None
    )
    assert len(manager.futures.all()) == (placed == HERE)
    manager.close()


def test_log_is_offline_when_it_may_be_in_a_directory_that_could_not_be_opened(
    paths: dict[Uuid, str], blocking: ThreadPoolExecutor
) -> None:
    manager = LogManager(Environment(), [paths[HERE]], lambda topic: SETTINGS, failed=[paths.pop(THERE)])
    logs = BrokerLogs(manager, paths, blocking)
    logs.load_all()
    assert logs.is_offline(*KEY, is_new=False)
    assert not logs.is_offline(*KEY, is_new=True)
    logs.open(KEY[0], TOPIC_ID, [KEY[1]], UNASSIGNED_DIRECTORY, SETTINGS)
    assert not logs.is_offline(*KEY, is_new=False), "the log in the other directory works"
    manager.close()


def test_log_is_not_offline_when_it_does_not_exist_and_all_directories_work(
    paths: dict[Uuid, str], blocking: ThreadPoolExecutor
) -> None:
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    logs = BrokerLogs(manager, paths, blocking)
    logs.load_all()
    assert not logs.is_offline(*KEY, is_new=False)
    manager.close()


def test_log_is_offline_when_its_directory_fails_while_logs_are_loaded(
    paths: dict[Uuid, str], blocking: ThreadPoolExecutor
) -> None:
    leave_a_move_half_done(paths)
    shutil.rmtree(paths[HERE])
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    logs = BrokerLogs(manager, paths, blocking)
    logs.load_all()
    assert not logs.serves(paths[HERE])
    assert logs.is_offline(*KEY, is_new=False)
    manager.close()


def test_truncated_log_waits_for_the_upkeep_when_it_is_truncated_before_the_upkeep_starts(
    paths: dict[Uuid, str], image: MetadataImage, blocking: ThreadPoolExecutor
) -> None:
    environment = Environment()
    manager = LogManager(environment, paths.values(), lambda topic: SETTINGS)
    manager.load()
    [handle] = manager.create(KEY[0], TOPIC_ID, [KEY[1]], paths[HERE])
    handle.become_leader(ME, 0)
    for _ in range(3):
        assert handle.append(one_record()).error == 0
    manager.close()

    manager = LogManager(environment, paths.values(), lambda topic: SETTINGS)
    BrokerLogs(manager, paths, blocking).load(image, ME)
    found = manager.get(*KEY)
    assert found is not None
    found.truncate_to(1)
    assert found.append_replicated_now(one_record(offset=1), 0) is None, "the recovery point on disk is still above 1"
    upkeep = LogUpkeep(manager, environment)
    upkeep.start()
    assert found.append_replicated(one_record(offset=1), 0).error == 0
    points = checkpoints.OffsetCheckpoint(paths[HERE], checkpoints.RECOVERY_POINT).read()
    assert points == {KEY: 1}
    upkeep.close()
    manager.close()


def test_logs_that_are_deleted_at_the_same_time_share_the_writes_of_the_checkpoints(
    paths: dict[Uuid, str], blocking: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    logs = BrokerLogs(manager, paths, blocking)
    logs.load_all()
    partitions = logs.open(KEY[0], EARLIER_ID, range(20), HERE, SETTINGS)
    for each in partitions:
        each.become_leader(ME, 0)
        assert each.append(one_record()).error == 0
    manager.checkpoint_recovery_points()
    written: list[int] = []
    write = checkpoints.OffsetCheckpoint.write

    def noted(checkpoint: checkpoints.OffsetCheckpoint, offsets: dict[tuple[str, int], int]) -> None:
        written.append(len(offsets))
        write(checkpoint, offsets)

    monkeypatch.setattr(checkpoints.OffsetCheckpoint, "write", noted)
    busy = threading.Event()
    blocking.submit(busy.wait)  # takes the only thread of the pool
    for each in partitions[:-1]:
        logs.delete(each)
    busy.set()
    blocking.submit(int).result()  # waits until the thread has deleted the logs
    assert written == [1]
    [new] = logs.open(KEY[0], TOPIC_ID, [0], HERE, SETTINGS)
    assert new is not partitions[0]
    assert written == [1]
    logs.delete(partitions[-1])
    logs.open(KEY[0], TOPIC_ID, [19], HERE, SETTINGS)
    assert written == [1, 0]
    manager.close()


def opened_logs(paths: dict[Uuid, str], blocking: ThreadPoolExecutor) -> tuple[BrokerLogs, list[PartitionHandle]]:
    """Returns the logs of a broker, and two of them with a record each."""
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    logs = BrokerLogs(manager, paths, blocking)
    logs.load_all()
    partitions = logs.open(KEY[0], EARLIER_ID, range(2), HERE, SETTINGS)
    for each in partitions:
        each.become_leader(ME, 0)
        assert each.append(one_record()).error == 0
    return logs, partitions


def test_deletion_is_awaited_until_the_directory_is_renamed(
    paths: dict[Uuid, str], blocking: ThreadPoolExecutor
) -> None:
    logs, [partition, _] = opened_logs(paths, blocking)
    busy = threading.Event()

    async def story() -> None:
        blocking.submit(busy.wait)  # takes the only thread of the pool
        logs.delete(partition)
        waiting = asyncio.ensure_future(logs.undeleted([KEY, (KEY[0], 1)]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert names.partition_directory_name(*KEY) in os.listdir(paths[HERE])
        busy.set()
        assert await waiting == set()
        assert names.partition_directory_name(*KEY) not in os.listdir(paths[HERE])

    asyncio.run(story())


def test_deletion_has_failed_when_the_directory_cannot_be_renamed(
    paths: dict[Uuid, str], blocking: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, [partition, _] = opened_logs(paths, blocking)

    def refuse(*arguments: object) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    async def story() -> None:
        monkeypatch.setattr(logs._manager._files, "rename", refuse)
        logs.delete(partition)
        assert await logs.undeleted([KEY, (KEY[0], 1)]) == {KEY}

    asyncio.run(story())


def test_deletion_has_failed_when_the_broker_stops_before_it_begins(
    paths: dict[Uuid, str], blocking: ThreadPoolExecutor
) -> None:
    logs, [partition, _] = opened_logs(paths, blocking)
    busy = threading.Event()

    async def story() -> None:
        blocking.submit(busy.wait)  # takes the only thread of the pool
        logs.delete(partition)
        blocking.shutdown(wait=False, cancel_futures=True)
        assert await logs.undeleted([KEY]) == {KEY}

    asyncio.run(story())
    busy.set()


def test_log_of_a_topic_that_was_deleted_is_created_again_when_no_thread_is_free(
    paths: dict[Uuid, str], blocking: ThreadPoolExecutor
) -> None:
    """The thread of the event loop calls `open`, so it must not wait for other work of the threads."""
    manager = LogManager(Environment(), paths.values(), lambda topic: SETTINGS)
    logs = BrokerLogs(manager, paths, blocking)
    logs.load_all()
    earlier = logs.open(KEY[0], EARLIER_ID, range(2), HERE, SETTINGS)
    for each in earlier:
        each.become_leader(ME, 0)
        assert each.append(one_record()).error == 0
    manager.checkpoint_recovery_points()
    busy = threading.Event()
    blocking.submit(busy.wait)  # takes the only thread of the pool
    for each in earlier:
        logs.delete(each)
    opened: list[PartitionHandle] = []
    loop = threading.Thread(target=lambda: opened.extend(logs.open(KEY[0], TOPIC_ID, [0], HERE, SETTINGS)), daemon=True)
    loop.start()
    loop.join(LIMIT_S)
    try:
        [new] = opened
    finally:
        busy.set()
    assert checkpoints.OffsetCheckpoint(paths[HERE], checkpoints.RECOVERY_POINT).read().keys() == {(KEY[0], 1)}
    new.become_leader(ME, 0)
    assert new.append(one_record()).first_offset == 0
    blocking.submit(int).result()  # waits until the thread has deleted the other log
    assert (manager.get(*KEY), manager.get(KEY[0], 1)) == (new, None)
    manager.close()


def one_record(offset: int = 0) -> bytes:
    builder = RecordBatchBuilder(base_offset=offset)
    builder.append(0, None, b"value")
    return builder.build()
