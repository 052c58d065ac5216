"""The driver: an event loop, a disk and listeners around the Raft core. It makes, stores and loads snapshots, and
reports faults."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import controllers
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.snapshot import image_of, records_of
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import CreateTopicsRequest, DescribeQuorumRequest, FetchSnapshotRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import messages, snapshots
from kafkacore.raft.committed import CommittedBatch
from kafkacore.raft.file_log import FileLog
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch
from kafkacore.raft.snapshotting import SnapshotLimits, Snapshotter
from kafkacore.raft.voters import ReplicaKey

OBSERVER = ReplicaKey(7, Uuid(b"o" * 16))


async def create(harness, *names, partitions=1):
    made = CreateTopicsRequest
    topics = [made.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    response = await harness.controller.create_topics(controllers.Caller(), made(topics=topics, timeout_ms=5000))
    assert {each.error_code for each in response.topics} == {0}


def limits(**values):
    return SnapshotLimits(**{"bytes_between": 1 << 40, "interval_ms": 0, **values})


def snapshotter(harness, **values):
    made = Snapshotter(
        harness.log, limits(**values), harness.controller.snapshot, harness.driver.write_snapshot,
        harness.driver.change_log,
        lambda: harness.now, lambda: harness.wall)  # fmt: skip
    harness.driver.add_listener(made)
    return made


class SizedLog(controllers.SyncedMemoryLog):
    @property
    def size_bytes(self):
        return sum(len(batch[3]) for batch in self._batches)

    def delete_snapshot(self, snapshot_id):
        del self._snapshots[snapshot_id]


def test_node_on_disk_comes_back_with_all_answered_changes(tmp_path: Path) -> None:
    def life(story):
        directory = LogDirectory(Environment(), str(tmp_path))
        log = FileLog(directory)

        async def whole():
            harness = controllers.Harness(log=log)
            harness.state = life.state
            with ThreadPoolExecutor(2) as pool:
                harness.executor = pool
                await harness.start()
                await harness.brokers(1)
                await story(harness)
                await harness.driver.stop()
                life.state = harness.state
            return [repr(each) for each in records_of(harness.controller.image)]

        try:
            return asyncio.run(whole())
        finally:
            log.close()
            directory.close()

    life.state = None

    async def first(harness):
        await create(harness, *[f"t{n}" for n in range(200)], partitions=5)

    async def second(harness):
        assert harness.controller.image.partition_count == 1000
        harness.uuids = 1000
        await create(harness, "more")

    before, after = life(first), life(second)
    assert {each for each in before if "Topic" in each} < set(after)


def test_snapshot_is_made_after_enough_bytes_and_replaces_the_log(run) -> None:
    async def story(harness):
        await harness.driver.stop()
        await harness.start()
        made = snapshotter(harness, bytes_between=5_000, retention_bytes=0)
        await harness.until(lambda: harness.controller.active)
        await harness.brokers(1)
        for n in range(40):
            await create(harness, f"t{n}", partitions=10)
        await harness.until(lambda: len(harness.log.snapshots()) == 1 and harness.log.start_offset > 0)
        assert harness.log.start_offset == harness.log.snapshots()[0].offset
        expected = [repr(each) for each in records_of(harness.controller.image)]
        await made.close()
        await harness.driver.stop()
        await harness.start()
        await harness.until(lambda: harness.controller.active)
        assert [repr(each) for each in records_of(harness.controller.image)] == expected
        assert [repr(each) for each in records_of(harness.applied.publisher.image)] == expected

    run(story, log=SizedLog())


def test_no_snapshot_is_due_before_there_is_a_metadata_version(run) -> None:
    async def story(harness):
        made = snapshotter(harness, bytes_between=1)
        image, harness.controller.image = harness.controller.image, MetadataImage()
        made.on_batch(CommittedBatch(0, 0, 1, harness.wall, [], 100))
        await made._task
        assert harness.log.snapshots() == []
        harness.controller.image = image
        await harness.brokers(1)  # this commits the next batch
        await harness.until(harness.log.snapshots)

    run(story, log=SizedLog())


def test_snapshot_is_due_by_monotonic_time_and_not_by_the_wall_clock(run) -> None:
    async def story(harness):
        made = snapshotter(harness, interval_ms=1000)
        await harness.brokers(1)
        harness.wall += 3_600_000
        await create(harness, "early")
        assert made._task is None
        harness.wall -= 7_200_000
        harness.now += 1000
        await create(harness, "due")
        assert made._task is not None

    run(story, log=SizedLog())


def test_quiet_cluster_makes_snapshots_too(run) -> None:
    async def story(harness):
        made = snapshotter(harness, interval_ms=3_600_000)
        for _ in range(3):
            harness.now += 1_500_000
            end = harness.log.end_offset
            harness.controller.tick()
            await harness.until(lambda: harness.controller.image.offset >= end)  # noqa: B023
        assert made._task is not None
        await made._task
        assert harness.log.snapshots()[-1].offset > 0

    run(story, log=SizedLog(), metadata_max_idle_interval_ms="500")


def test_old_snapshots_are_deleted_after_their_retention_time(run) -> None:
    async def story(harness):
        await harness.driver.stop()
        await harness.start()
        made = snapshotter(harness, bytes_between=1, retention_ms=1000, retention_bytes=-1)
        await harness.until(lambda: harness.controller.active)
        await harness.brokers(1)
        await harness.until(lambda: made._task is not None and made._task.done())
        count = len(harness.log.snapshots())
        assert count >= 1
        harness.wall += 2000
        made.clean()
        assert len(harness.log.snapshots()) == 1

    run(story, log=SizedLog())


def test_old_snapshot_is_deleted_with_a_warning_when_it_is_damaged(run, caplog: pytest.LogCaptureFixture) -> None:
    async def story(harness):
        await harness.driver.stop()
        await harness.start()
        made = snapshotter(harness, bytes_between=1, retention_ms=WEEK_MS, retention_bytes=-1)
        await harness.until(lambda: harness.controller.active)
        await harness.brokers(1)
        for count, topic in enumerate(("a", "b"), 1):
            await create(harness, topic)
            await harness.until(lambda: len(harness.log.snapshots()) >= count)  # noqa: B023
            await made.close()
        damaged, *kept = harness.log.snapshots()
        read = harness.log.read_snapshot
        harness.log.read_snapshot = lambda which, *part: b"\0" * 100 if which == damaged else read(which, *part)
        made.clean()
        assert harness.log.snapshots() == kept
        assert f"snapshot {damaged.offset}-{damaged.epoch} is deleted, because it is damaged: " in caplog.text

    run(story, log=SizedLog())


def test_snapshot_is_fetched_in_parts(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        await create(harness, "a", partitions=50)
        contents = harness.controller.snapshot()
        wanted = OffsetAndEpoch(contents.offset + 1, contents.epoch)
        await harness.driver.write_snapshot(wanted, contents.values, contents.timestamp_ms)
        whole = harness.log.read_snapshot(wanted, 0, 1 << 20)
        got = b""
        while len(got) < len(whole):
            request = messages.fetch_snapshot(controllers.CLUSTER, OBSERVER, contents.epoch, wanted, len(got))
            request.max_bytes = 700
            part = (await harness.driver.request(request)).topics[0].partitions[0]
            assert (part.error_code, part.size, part.position) == (0, len(whole), len(got))
            got += bytes(part.unaligned_records)
        assert got == whole

    run(story)


def test_snapshot_is_made_where_the_loop_does_not_wait(run, monkeypatch) -> None:
    made: list[bool] = []  # for each value, whether the executor made it
    in_executor = False

    def noted(values):
        for value in values:
            made.append(in_executor)
            yield value

    async def story(harness):
        blocking = harness.driver._blocking

        def marked(work, *arguments):
            def run_marked():
                nonlocal in_executor
                in_executor = True
                try:
                    return work(*arguments)
                finally:
                    in_executor = False

            return blocking(run_marked)

        monkeypatch.setattr(harness.driver, "_blocking", marked)
        contents = harness.controller.snapshot()
        wanted = OffsetAndEpoch(contents.offset + 1, contents.epoch)
        await harness.driver.write_snapshot(wanted, noted(contents.values), contents.timestamp_ms)
        assert made and all(made)

    run(story)


@pytest.mark.parametrize("step", ["contents", "write_snapshot", "finish_snapshot"])
def test_parts_of_a_snapshot_are_removed_when_it_cannot_be_made(run, step: str, monkeypatch) -> None:
    async def story(harness):
        def fail(*_):
            assert harness.log._partial or step == "write_snapshot"
            raise OSError(errno.ENOSPC, "No space left on device")

        def write(snapshot_id, position, data):
            MemoryLog.write_snapshot(harness.log, snapshot_id, position, data)
            if position:
                fail()

        def values():
            yield from contents.values
            if step == "contents":
                yield from (b"%d" % n for n in range(snapshots.BATCH_RECORDS))
                fail()

        if step != "contents":
            monkeypatch.setattr(harness.log, step, write if step == "write_snapshot" else fail)
        contents = harness.controller.snapshot()
        wanted = OffsetAndEpoch(contents.offset + 1, contents.epoch)
        with pytest.raises(OSError, match="No space left"):
            await harness.driver.write_snapshot(wanted, values(), contents.timestamp_ms)
        assert (harness.log._partial, harness.log.snapshots()) == ({}, [])

    run(story)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"position": -1}, "POSITION_OUT_OF_RANGE"),
        ({"position": 1 << 40}, "POSITION_OUT_OF_RANGE"),
        ({"current_leader_epoch": 0}, "FENCED_LEADER_EPOCH"),
        ({"current_leader_epoch": 99}, "UNKNOWN_LEADER_EPOCH"),
        ({"snapshot_id": FetchSnapshotRequest.SnapshotId(end_offset=3, epoch=1)}, "SNAPSHOT_NOT_FOUND"),
        ({"partition": 1}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_fetch_of_a_missing_snapshot_or_part_is_refused(run, change, error) -> None:
    async def story(harness):
        contents = harness.controller.snapshot()
        wanted = OffsetAndEpoch(contents.offset + 1, contents.epoch)
        await harness.driver.write_snapshot(wanted, contents.values, contents.timestamp_ms)
        request = messages.fetch_snapshot(controllers.CLUSTER, OBSERVER, contents.epoch, wanted, 0)
        for name, value in change.items():
            setattr(request.topics[0].partitions[0], name, value)
        response = await harness.driver.request(request)
        assert response.topics[0].partitions[0].error_code == getattr(ErrorCode, error)
        response.encode(1)

    run(story)


def test_request_of_another_cluster_is_refused(run) -> None:
    async def story(harness):
        request = messages.fetch("another", OBSERVER, 1, OffsetAndEpoch(0, 0), -1)
        assert (await harness.driver.request(request)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

    run(story)


def test_fetch_waits_for_records_at_most_its_max_wait(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        driver = harness.driver
        end = OffsetAndEpoch(driver.end_offset, driver.epoch)
        request = messages.fetch(controllers.CLUSTER, OBSERVER, driver.epoch, end, driver.high_watermark)
        waiting = asyncio.ensure_future(driver.request(request))
        await asyncio.sleep(0)
        assert not waiting.done()
        await create(harness, "a")
        answer = (await waiting).responses[0].partitions[0]
        assert answer.records and answer.error_code == 0
        request.topics[0].partitions[0].fetch_offset = driver.end_offset
        waiting = asyncio.ensure_future(driver.request(request))
        await asyncio.sleep(0)
        harness.now += 501
        driver._pump()
        answer = (await waiting).responses[0].partitions[0]
        assert (answer.records, answer.high_watermark) == (b"", driver.high_watermark)

    run(story)


def test_describe_quorum_lists_voters_and_observers(run) -> None:
    async def story(harness):
        driver = harness.driver
        end = OffsetAndEpoch(driver.end_offset, driver.epoch)
        request = messages.fetch(controllers.CLUSTER, OBSERVER, driver.epoch, end, -1)
        request.max_wait_ms = 0
        await driver.request(request)
        made = DescribeQuorumRequest
        first = made.PartitionData(partition_index=0)
        asked = made(topics=[made.TopicData(topic_name=messages.TOPIC, partitions=[first])])
        told = (await driver.request(asked)).topics[0].partitions[0]
        assert (told.leader_id, told.leader_epoch, told.high_watermark) == (1, driver.epoch, driver.high_watermark)
        assert [each.replica_id for each in told.current_voters] == [1]
        assert [(each.replica_id, each.log_end_offset) for each in told.observers] == [(7, end.offset)]
        assert told.current_voters[0].last_fetch_timestamp == 1_700_000_000_000
        other = made(topics=[made.TopicData(topic_name="x", partitions=[first])])
        told = (await driver.request(other)).topics[0].partitions[0]
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(story)


def test_replica_ends_when_its_disk_fails(run) -> None:
    async def story(harness):
        await harness.brokers(1)

        def broken() -> None:
            raise OSError(5, "Input/output error")

        harness.log.begin_sync = broken
        waiting = asyncio.ensure_future(create(harness, "a"))
        with pytest.raises(OSError, match="Input/output"):
            await harness.until(waiting.done)
        waiting.cancel()
        assert harness.controller.image.topic("a") is None
        harness.faults.clear()

    run(story)


def test_vote_waits_for_a_file_descriptor(run) -> None:
    async def story(harness):
        driver, persist, attempts = harness.driver, harness.persist, []

        def short(state, version):
            attempts.append(state.leader_epoch)
            if len(attempts) < 3:
                raise OSError(errno.EMFILE, "Too many open files")
            persist(state, version)

        driver._persist = short
        epoch = driver.epoch
        driver.raft.replica.become_unattached(epoch + 1)
        driver._schedule()
        await harness.until(lambda: len(attempts) >= 3)
        assert attempts[:3] == [epoch + 1] * 3 and harness.faults == []
        assert harness.state.leader_epoch == epoch + 1

    run(story)


def test_leader_ends_when_its_log_refuses_an_append(run) -> None:
    async def story(harness):
        await harness.brokers(1)

        def broken(data: bytes) -> None:
            raise OSError(5, "Input/output error")

        harness.log.append = broken
        with pytest.raises(KafkaError, match="unexpected error"):
            await create(harness, "a")
        [fault] = harness.faults
        assert isinstance(fault, OSError)
        harness.faults.clear()

    run(story)


def test_waiting_request_is_answered_when_the_driver_stops(run) -> None:
    async def story(harness):
        driver = harness.driver
        end = OffsetAndEpoch(driver.end_offset, driver.epoch)
        request = messages.fetch(controllers.CLUSTER, OBSERVER, driver.epoch, end, driver.high_watermark)
        waiting = asyncio.ensure_future(driver.request(request))
        await asyncio.sleep(0)
        await driver.stop()
        try:
            error = (await waiting).responses[0].partitions[0].error_code
        except KafkaError as refused:
            error = refused.code
        assert error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE)

    run(story)


def test_leader_elsewhere_is_none_when_this_replica_leads(run) -> None:
    async def story(harness):
        driver = harness.driver
        assert driver.leader_elsewhere is None
        assert driver.raft.leader_endpoint is not None
        driver.raft.replica.become_follower(driver.epoch + 1, 7, ("there", 9093))
        assert driver.leader_elsewhere == ("there", 9093)

    run(story)


WEEK_MS = 604_800_000


def test_image_of_the_active_controller_has_the_times_of_its_batches(run) -> None:
    async def story(harness):
        for name in ("a", "b"):
            harness.wall += WEEK_MS
            harness.now += 1000
            await harness.brokers(1)
            await create(harness, name)
            for image in (harness.controller.image, harness.adopted.image, harness.applied.publisher.image):
                assert (image.timestamp_ms, image.epoch) == (harness.wall, harness.driver.epoch)
            contents = harness.controller.snapshot()
            made = OffsetAndEpoch(contents.offset + 1, contents.epoch)
            await harness.driver.write_snapshot(made, contents.values, contents.timestamp_ms)
            assert snapshots.read_timestamp(harness.log, made) == harness.wall
            # After a restart, the image comes from the snapshot, and its time from the snapshot's header.
            assert image_of([], *made, snapshots.read_timestamp(harness.log, made)).timestamp_ms == harness.wall

    run(story)


def test_snapshots_of_this_week_are_kept_although_the_controller_leads_for_longer(run) -> None:
    async def story(harness):
        made = snapshotter(harness, bytes_between=1, retention_ms=WEEK_MS, retention_bytes=-1)
        await harness.brokers(1)
        harness.wall += 2 * WEEK_MS
        for day in range(4):
            harness.wall += 86_400_000
            await create(harness, f"t{day}")
            await harness.until(lambda: made._task is not None and made._task.done())
        times = [snapshots.read_timestamp(harness.log, each) for each in harness.log.snapshots()]
        assert len(times) >= 3
        assert [harness.wall - each <= WEEK_MS for each in times] == [True] * len(times)
        harness.wall = times[-2] + WEEK_MS + 1
        made.clean()
        assert [snapshots.read_timestamp(harness.log, each) for each in harness.log.snapshots()] == times[-1:]

    run(story, log=SizedLog())
