"""The keys that set the intervals of the upkeep thread's jobs."""

from __future__ import annotations

import threading

import pytest

from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.storage.log_upkeep import LogUpkeep, UpkeepIntervals, intervals_from

SOUND = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
}
NEVER = str((1 << 31) - 1)
KEYS = {
    "log.retention.check.interval.ms": "delete_old_segments",
    "log.flush.scheduler.interval.ms": "flush_due",
    "log.flush.offset.checkpoint.interval.ms": "checkpoint_recovery_points",
    "log.flush.start.offset.checkpoint.interval.ms": "checkpoint_log_starts",
    "replica.high.watermark.checkpoint.interval.ms": "checkpoint_high_watermarks",
    "producer.id.expiration.check.interval.ms": "expire_producers",
}


class Manager:
    """A stub that records each job that it is asked to do. A second call of a job shows that the job is periodic."""

    native_directories = ()

    def __init__(self) -> None:
        self.done: list[str] = []
        self.again = threading.Event()

    def await_cuts(self, wanted: bool) -> None:
        """Does nothing, because these tests truncate no log."""

    def __getattr__(self, name: str) -> object:
        def work(*_: object) -> None:
            self.done.append(name)
            if len(self.done) > 1:
                self.again.set()

        work.__name__ = name
        return work


def test_upkeep_defaults_equal_the_defaults_of_the_keys() -> None:
    assert intervals_from(BrokerConfig(SOUND)) == UpkeepIntervals()


@pytest.mark.parametrize(("key", "work"), KEYS.items())
def test_key_changes_the_interval_of_one_piece_of_upkeep(key: str, work: str) -> None:
    far = dict.fromkeys(KEYS, NEVER) | {"log.initial.task.delay.ms": "0"}
    manager = Manager()
    upkeep = LogUpkeep(manager, Environment(), intervals_from(BrokerConfig(SOUND | far | {key: "1"})))  # type: ignore[arg-type]
    upkeep.start()
    assert manager.again.wait(20)
    upkeep.close()
    assert set(manager.done) == {work}


def test_first_round_of_upkeep_comes_after_the_initial_delay() -> None:
    prompt = dict.fromkeys(KEYS, "1")
    manager = Manager()
    intervals = intervals_from(BrokerConfig(SOUND | prompt | {"log.initial.task.delay.ms": "50"}))
    environment = Environment()
    began_ns = environment.monotonic_ns()
    upkeep = LogUpkeep(manager, environment, intervals)  # type: ignore[arg-type]
    upkeep.start()
    assert manager.again.wait(20)
    assert environment.monotonic_ns() - began_ns >= 50_000_000
    upkeep.close()
