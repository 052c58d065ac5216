"""The native threads of simulated nodes (thread pools, sleeping threads and their wake-up signals), run on one thread
in virtual time. The seed decides their order."""

import gc
import os
from pathlib import Path

import pytest

from kafkacore._fast.log import partition_watch as watch
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_watch import PartitionWatch
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory, live_count
from kafkacore._fast.world.agenda import PAUSES, SimulatedAgenda
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore._fast.world.simulated_disk import SimulatedDisk

EACH_BATCH = LogSettings(flush_messages=1)
MS = 1_000_000

pauses = pytest.mark.skipif(not PAUSES, reason="the sanitizer of this build does not follow fibers")


class Node:
    """A log directory in a simulated world. It has one partition, `t-0`."""

    def __init__(self, agenda: SimulatedAgenda, seed: int = 0) -> None:
        self.disk = SimulatedDisk(seed)
        self.disk.make_directories("/logs")
        self.environment = self.disk.environment(ManualClock(), agenda, seed)
        self.directory = LogDirectory(self.environment, "/logs")
        self.partition = self.make("t")

    def make(self, topic: str) -> PartitionHandle:
        made = PartitionHandle(self.directory, topic, 0, settings=EACH_BATCH)
        made.become_leader(1, 0)
        return made


def batch(value: bytes = b"x") -> bytearray:
    builder = RecordBatchBuilder()
    builder.append(1, None, value)
    return bytearray(builder.build())


def run_all(agenda: SimulatedAgenda) -> int:
    """Lets virtual time pass until no task waits. Returns how long that took, in ns."""
    begun_ns = agenda.now_ns
    while agenda.next_ns >= 0:
        agenda.now_ns = max(agenda.now_ns, agenda.next_ns)
        agenda.run_due()
    return agenda.now_ns - begun_ns


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_log_opens_and_syncs_without_a_thread_or_a_descriptor_when_its_world_is_simulated() -> None:
    before = threads(), descriptors()
    agenda = SimulatedAgenda()
    node = Node(agenda)
    assert node.partition.append_now(batch()) is None  # the log has no open file yet, so the append must wait
    assert node.partition.state == "opening"
    assert agenda.waiting == 1
    run_all(agenda)
    assert node.partition.state == "open"
    assert node.partition.append_now(batch()) is not None
    assert node.partition.synced_offset == 0
    run_all(agenda)
    assert node.partition.synced_offset == 1
    assert (threads(), descriptors()) == before


@pauses
def test_sync_takes_virtual_time_and_covers_only_what_was_written_before_it() -> None:
    agenda = SimulatedAgenda(most_start_ns=0)
    node = Node(agenda)
    node.partition.append(batch())
    run_all(agenda)
    node.disk.pace("sync", 5000)
    node.partition.append_now(batch())
    agenda.run_due()  # the committer thread begins its sync
    node.partition.append_now(batch())
    agenda.now_ns += 5 * MS - 1
    assert agenda.run_due() == 0
    agenda.now_ns += 1
    agenda.run_due()
    assert node.partition.synced_offset == 2
    assert run_all(agenda) == 5 * MS  # the committer runs again for the batch that came meanwhile
    assert node.partition.synced_offset == 3


@pauses
def test_commits_of_two_logs_overlap_when_syncs_take_time() -> None:
    agenda = SimulatedAgenda(most_start_ns=0)
    node = Node(agenda)
    other = node.make("u")
    for each in (node.partition, other):
        each.append(batch())
    run_all(agenda)
    node.disk.pace("sync", 1000)
    for each in (node.partition, other):
        each.append_now(batch())
    assert run_all(agenda) == 1 * MS
    assert (node.partition.synced_offset, other.synced_offset) == (2, 2)


def test_bell_rings_in_place_of_an_eventfd_until_its_reader_takes_the_tokens() -> None:
    agenda = SimulatedAgenda()
    node = Node(agenda)
    node.partition.append(batch())
    watching = PartitionWatch(node.environment)
    assert watching.fileno() >= 1 << 30
    assert agenda.rung() == []
    for token in ("a", "b", "c"):
        watching.arm(token, node.partition, watch.FETCH, 1)
    node.partition.append_now(batch())
    run_all(agenda)
    assert agenda.rung() == [watching.fileno()]
    assert sorted(map(str, watching.take())) == ["a", "b", "c"]
    assert agenda.rung() == []
    watching.close()


def test_bells_are_listed_in_the_order_of_ringing() -> None:
    agenda = SimulatedAgenda()
    nodes = [Node(agenda), Node(agenda)]
    watches = [PartitionWatch(node.environment) for node in nodes]
    for node, each in zip(nodes, watches, strict=True):
        node.partition.append(batch())
        each.arm("x", node.partition, watch.FETCH, 1)
    for node in reversed(nodes):
        node.partition.append_now(batch())
        run_all(agenda)
    assert agenda.rung() == [watches[1].fileno(), watches[0].fileno()]
    watches[1].close()
    assert agenda.rung() == [watches[0].fileno()]


def test_blocking_append_runs_the_tasks_of_its_own_node_only() -> None:
    agenda = SimulatedAgenda()
    one, two = Node(agenda), Node(agenda)
    two.partition.append_now(batch())
    assert one.partition.append(batch()).first_offset == 0
    assert one.partition.flush()
    assert two.partition.state == "opening"
    run_all(agenda)
    assert two.partition.state == "open"


def test_flush_with_a_limit_returns_when_no_task_can_end_its_wait() -> None:
    agenda = SimulatedAgenda()
    node = Node(agenda)
    node.partition.append(batch())
    run_all(agenda)
    node.directory.close()
    node.partition.append_now(batch())
    assert not node.partition.flush(1000)


def history(seed: int) -> list[tuple[int, str]]:
    """Opens eight logs. Returns the order and the times in which they open."""
    agenda = SimulatedAgenda(seed)
    node = Node(agenda, seed)
    node.disk.pace("sync", 10, 300)
    logs = {topic: node.make(topic) for topic in "abcdefgh"}
    for log in logs.values():
        log.append_now(batch())
    seen: list[tuple[int, str]] = []
    while agenda.next_ns >= 0:
        agenda.now_ns = agenda.next_ns
        agenda.run_due()
        for topic, log in logs.items():
            if log.state == "open" and log.append_now(batch()) is not None:
                seen.append((agenda.now_ns, topic))
                if log.end_offset == 3:
                    log.close()
    return seen


@pauses
def test_seed_gives_the_same_history_twice_and_another_seed_another_one() -> None:
    assert history(1) == history(1)
    assert history(1) != history(2)


def test_chosen_task_runs_first_when_several_wait() -> None:
    agenda = SimulatedAgenda()
    nodes = [Node(agenda), Node(agenda), Node(agenda)]
    for node in nodes:
        node.partition.append_now(batch())
    assert agenda.waiting == 3
    agenda.run_one(1)
    assert [node.partition.state for node in nodes] == ["opening", "open", "opening"]
    with pytest.raises(IndexError, match="2 tasks wait"):
        agenda.run_one(2)


@pauses
def test_tasks_of_a_dead_node_end_and_touch_nothing_when_its_power_was_cut() -> None:
    agenda = SimulatedAgenda(most_start_ns=0)
    node = Node(agenda)
    node.partition.append(batch())
    run_all(agenda)
    node.disk.pace("sync", 1000)
    node.partition.append_now(batch(b"lost"))
    agenda.run_due()
    node.disk.cut_power()
    assert agenda.run_for(node.environment.owner) > 0
    assert agenda.waiting == 0
    assert node.partition.synced_offset == 1
    node.disk.restart(3)
    operations = node.disk.operations
    node.make("late").append_now(batch())
    run_all(agenda)
    assert node.disk.operations == operations
    assert not node.disk.exists("/logs/late-0")


def test_environment_of_a_killed_process_is_dead_and_its_writes_stay() -> None:
    agenda = SimulatedAgenda()
    node = Node(agenda)
    node.partition.append(batch(b"kept"))
    lock = node.disk.lock("/logs/.lock")
    node.disk.kill()
    node.disk.lock("/logs/.lock").close()
    lock.close()
    assert b"kept" in node.disk.read("/logs/t-0/00000000000000000000.log")
    assert node.partition.append_now(batch(b"late")) is None or node.directory.offline_errno
    again = node.disk.environment(ManualClock(), agenda)
    fresh = PartitionHandle(LogDirectory(again, "/logs"), "u", 0)
    fresh.become_leader(1, 0)
    assert fresh.append(batch()).error == 0


def test_closing_a_directory_finishes_its_queued_jobs() -> None:
    agenda = SimulatedAgenda()
    node = Node(agenda)
    node.disk.pace("names", 100)
    node.partition.append_now(batch())
    node.directory.close()
    assert agenda.waiting == 0
    assert node.disk.exists("/logs/t-0/00000000000000000000.log")


def test_jobs_of_a_node_wait_while_its_clock_jumps() -> None:
    agenda = SimulatedAgenda()
    clock = ManualClock()
    disk = SimulatedDisk()
    disk.make_directories("/logs")
    directory = LogDirectory(disk.environment(clock, agenda), "/logs")
    partition = PartitionHandle(directory, "t", 0)
    partition.become_leader(1, 0)
    partition.append_now(batch())
    clock.advance_ms(3_600_000)
    assert agenda.next_ns < MS
    run_all(agenda)
    assert partition.state == "open"


def test_random_bytes_follow_the_seed_in_a_simulated_world_only() -> None:
    agenda = SimulatedAgenda(7)
    one = Environment(None, agenda, 5).random_bytes(33)
    assert one == Environment(None, SimulatedAgenda(8), 5).random_bytes(33)
    assert one != Environment(None, agenda, 6).random_bytes(33)
    assert len(one) == 33
    assert Environment().random_bytes(16) != Environment().random_bytes(16)
    with pytest.raises(ValueError, match="agenda"):
        Environment(None, None, 5)


def test_environment_numbers_its_node_and_says_which_world_it_is_in(tmp_path: Path) -> None:
    agenda = SimulatedAgenda()
    assert [Environment(None, agenda).owner for _ in range(3)] == [1, 2, 3]
    assert Environment(None, agenda).is_simulated
    assert not Environment().is_simulated


def test_tasks_of_a_stopped_process_wait_until_it_goes_on() -> None:
    agenda = SimulatedAgenda(most_start_ns=0)
    stopped, other = Node(agenda), Node(agenda)
    for node in (stopped, other):
        node.partition.append_now(batch())
    agenda.stop(stopped.environment.owner)
    run_all(agenda)
    assert (stopped.partition.state, other.partition.state) == ("opening", "open")
    assert (agenda.waiting, agenda.next_ns) == (1, -1)
    agenda.go_on(stopped.environment.owner)
    run_all(agenda)
    assert stopped.partition.state == "open"


def test_disk_of_a_dead_node_lives_as_long_as_a_log_that_uses_it() -> None:
    agenda = SimulatedAgenda()
    node = Node(agenda)
    node.partition.append(batch())
    watching = PartitionWatch(Environment(None, agenda))
    watching.arm("x", node.partition, watch.FETCH, 1)
    partition = node.partition
    gc.collect()  # frees what earlier tests left behind
    before = live_count()
    del node
    gc.collect()
    assert partition.read(0).error == 0
    watching.close()
    del partition, watching
    gc.collect()
    assert live_count() == before - 1
