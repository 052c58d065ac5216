"""A controller compared with an independent model. In random order, brokers fail, leave and return (also without their
disk), leaders report new ISRs, and operators reassign partitions and elect leaders. At the end all brokers are back and
all replicas catch up, and then no reassignment may be in progress.

The model knows which records each replica has, as numbers. A record counts as acknowledged if every member of the ISR
had it. The model shares no code with the controller, and reads only the committed image.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import controllers
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AssignReplicasToDirsRequest,
    ElectLeadersRequest,
)
from kafkacore.protocol.uuid import Uuid
from partition_leaders import Caller, alter, asked, create
from seeds import SEED

BROKERS = (1, 2, 3, 4)
TOPICS = {"a": 3, "b": 2, "c": 1}  # the number of replicas of each partition
PARTITIONS = 2
STEPS = 120
PREFERRED, UNCLEAN = 0, 1


class Model:
    """The rules that partitions must follow, and the records that each replica has."""

    def __init__(self, harness: Any, *, elr: bool, unclean: bool, least_isr: int) -> None:
        self.harness = harness
        self.elr, self.unclean, self.least_isr = elr, unclean, least_isr
        self.rows: dict[tuple[str, int], Any] = {}
        self.written: dict[tuple[str, int], int] = {}  # by topic and partition: the last acknowledged record
        # By topic, partition and broker: the last record of the replica.
        self.held: dict[tuple[str, int, int], int] = {}
        self.uncleanly_led: set[tuple[str, int]] = set()

    def look(self) -> None:
        image = self.harness.controller.image
        live = {each.broker_id for each in image.brokers.values() if not each.fenced}
        for name in TOPICS:
            for index in range(PARTITIONS):
                row = self.harness.partition(name, index)
                self._check(name, index, row, live)
                self._follow(name, index, row)
                self.rows[name, index] = row

    def _check(self, name: str, index: int, row: Any, live: set[int]) -> None:
        told = f"{name}-{index} was {self.rows.get((name, index))}, is {row}, live {live}"
        assert len(set(row.replicas)) == len(row.replicas), told
        assert set(row.isr) <= set(row.replicas) and len(set(row.isr)) == len(row.isr), told
        assert set(row.elr) <= set(row.replicas) and set(row.elr).isdisjoint(row.isr), told
        assert {*row.adding, *row.removing, *row.last_known_elr} <= set(row.replicas), told
        assert self.elr or not row.elr, told
        if row.leader >= 0:
            assert row.leader in row.isr and row.leader in live, told
            assert row.last_known_elr == (), told
        elif not self.elr:
            assert row.isr, told  # a member of the ISR has the records
        if row.recovery_state:
            assert len(row.isr) <= 1, told
        # Replicas are eligible only while the ISR is below min.insync.replicas, so no record is acknowledged then.
        assert not row.elr or len(row.isr) < min(self.least_isr, len(row.replicas)) or row.adding or row.removing, told
        was = self.rows.get((name, index))
        if was is None:
            return
        same = row == was
        assert row.partition_epoch >= was.partition_epoch and row.leader_epoch >= was.leader_epoch, told
        assert same or row.partition_epoch > was.partition_epoch, told
        assert row.leader in (was.leader, -1) or row.leader_epoch > was.leader_epoch, told
        clean = row.leader in was.isr or (self.elr and row.leader in was.elr)
        if row.leader not in (was.leader, -1) and row.recovery_state and not clean:
            assert self.unclean or (self.elr and was.last_known_elr == (row.leader,)), told
            self.uncleanly_led.add((name, index))

    def _follow(self, name: str, index: int, row: Any) -> None:
        """Applies a change of the leader. A new leader has every acknowledged record, unless its election was
        unclean."""
        was = self.rows.get((name, index))
        if row.leader < 0 or (was is not None and was.leader == row.leader):
            return
        last = self.written.get((name, index), 0)
        held = self.held.get((name, index, row.leader), 0)
        if (name, index) in self.uncleanly_led:
            self.written[name, index] = min(last, held)
            self.uncleanly_led.discard((name, index))
        else:
            assert held >= last, (
                f"{name}-{index}: leader {row.leader} has {held} of {last} acknowledged: {was} -> {row}"
            )

    def write(self, name: str, index: int) -> None:
        """Makes the leader append a record. The record is acknowledged if the ISR is large enough, and all members of
        the ISR then have it."""
        row = self.rows[name, index]
        enough = len(row.isr) >= min(self.least_isr, len(row.replicas))
        if row.leader < 0 or not enough:
            return
        self.written[name, index] = self.written.get((name, index), 0) + 1
        for replica in row.isr:
            self.held[name, index, replica] = self.written[name, index]

    def catches_up(self, name: str, index: int, replica: int) -> None:
        self.held[name, index, replica] = self.written.get((name, index), 0)

    def loses_its_disk_cache(self, broker: int, random: Random) -> None:
        """Makes a broker lose its newest records, as may happen in an unclean shutdown, if other replicas still have
        them."""
        for key, held in self.held.items():
            if key[2] == broker and random.random() < 0.5:
                self.held[key] = max(0, held - 1)

    def loses_its_disk(self, broker: int) -> None:
        for key in self.held:
            if key[2] == broker:
                self.held[key] = 0


class Story:
    def __init__(self, harness: Any, model: Model, random: Random) -> None:
        self.harness, self.model, self.random = harness, model, random
        self.incarnation = dict.fromkeys(BROKERS, 1)
        self.clean = dict.fromkeys(BROKERS, -1)
        self.directories = {broker: controllers.directory_of(broker) for broker in BROKERS}
        self.done: dict[str, int] = {}

    async def step(self) -> None:
        steps = (
            (self.fail, 3), (self.return_, 6), (self.leave, 1), (self.report, 12), (self.write, 8), (self.elect, 2),
            (self.reassign, 3), (self.lose_several, 1), (self.return_without_disk, 1),
        )  # fmt: skip
        (chosen,) = self.random.choices([each for each, _ in steps], [weight for _, weight in steps])
        if await chosen():
            self.done[chosen.__name__] = self.done.get(chosen.__name__, 0) + 1
        self.model.look()

    def _brokers(self, *, fenced: bool) -> list[Any]:
        found = self.harness.controller.image.brokers.values()
        return sorted((each for each in found if each.fenced is fenced), key=lambda each: each.broker_id)

    def _partition(self) -> tuple[str, int]:
        return self.random.choice(list(TOPICS)), self.random.randrange(PARTITIONS)

    async def fail(self) -> bool:
        live = self._brokers(fenced=False)
        return await self._expire(self.random.sample(live, min(1, len(live))))

    async def lose_several(self) -> bool:
        live = self._brokers(fenced=False)
        return await self._expire(self.random.sample(live, self.random.randint(0, len(live))))

    async def _expire(self, brokers: list[Any]) -> bool:
        controller = self.harness.controller
        controller._fence(sorted((each.broker_id, each.epoch) for each in brokers))
        await self._committed()
        for each in brokers:
            self.clean[each.broker_id] = -1
        return bool(brokers)

    async def _committed(self) -> None:
        controller = self.harness.controller
        await self.harness.until(lambda: controller.image.offset == controller._head.offset)

    async def return_(self) -> bool:
        fenced = self._brokers(fenced=True)
        if not fenced:
            return False
        broker = self.random.choice(fenced).broker_id
        if self.random.random() < 0.5:  # a new process, which may be necessary because of a crash
            self.incarnation[broker] += 1
            if self.clean[broker] < 0 and self.model.elr:
                self.model.loses_its_disk_cache(broker, self.random)
            previous = {"previous_broker_epoch": self.clean[broker], "log_dirs": [self.directories[broker]]}
            await self.harness.register(broker, self.incarnation[broker], **previous)
            self.model.look()
        await self.harness.heartbeat(broker)
        return True

    async def return_without_disk(self) -> bool:
        """Makes a broker return after a clean shutdown, without the directory in which its replicas were."""
        fenced = self._brokers(fenced=True)
        if not fenced or not self.model.elr:
            return False
        broker = self.random.choice(fenced).broker_id
        self.incarnation[broker] += 1
        self.directories[broker] = Uuid((1_000 * broker + self.incarnation[broker]).to_bytes(16, "big"))
        self.model.loses_its_disk(broker)
        previous = {"previous_broker_epoch": self.clean[broker], "log_dirs": [self.directories[broker]]}
        await self.harness.register(broker, self.incarnation[broker], **previous)
        self.model.look()
        await self.harness.heartbeat(broker)
        self.model.look()
        await self._assign(broker)
        return True

    async def _assign(self, broker: int) -> None:
        """Makes a broker report the directory of its replicas."""
        made = AssignReplicasToDirsRequest
        image = self.harness.controller.image
        topics = [
            made.TopicData(
                topic_id=image.topic(name).topic_id,
                partitions=[made.PartitionData(partition_index=index) for index in range(PARTITIONS)],
            )
            for name in TOPICS
        ]
        directory = made.DirectoryData(id=self.directories[broker], topics=topics)
        request = made(broker_id=broker, broker_epoch=self.harness.epochs[broker], directories=[directory])
        await self.harness.controller.assign_replicas_to_dirs(Caller(0), request)

    async def settle(self) -> None:
        """Lets all brokers return and all replicas catch up."""
        for _ in range(2):
            for broker in BROKERS:
                await self.harness.heartbeat(broker)
                self.model.look()
        for name in TOPICS:
            for index in range(PARTITIONS):
                for _ in range(3):  # recovery, a larger ISR and, after a reassignment, one under a new leader
                    await self._report_all(name, index)
                row = self.harness.partition(name, index)
                assert row.leader < 0 or (set(row.isr) == set(row.replicas) and not row.adding + row.removing), row

    async def _report_all(self, name: str, index: int) -> None:
        row = self.harness.partition(name, index)
        if row.leader >= 0:
            isr = [row.leader] if row.recovery_state else list(row.replicas)
            for each in isr:
                self.model.catches_up(name, index, each)
            await alter(self.harness, asked(self.harness, isr, name, index), leader=row.leader, name=name)
            self.model.look()

    async def leave(self) -> bool:
        live = self._brokers(fenced=False)
        if not live:
            return False
        broker = self.random.choice(live)
        answer = await self.harness.leaving(broker.broker_id)
        self.model.look()
        for each in self._brokers(fenced=False):
            if each.broker_id != broker.broker_id:
                await self.harness.heartbeat(each.broker_id)
        assert (await answer).should_shut_down
        self.model.look()
        self.clean[broker.broker_id] = broker.epoch
        return True

    async def report(self) -> bool:
        """Makes a leader add a replica that has caught up, remove a replica, or report that it has recovered."""
        name, index = self._partition()
        row = self.harness.partition(name, index)
        if row.leader < 0:
            return False
        isr = list(row.isr)
        joining = [each for each in row.replicas if each not in isr]
        if not row.recovery_state and joining and self.random.random() < 0.7:
            isr.append(self.random.choice(joining))
        elif len(isr) > 1:
            isr.remove(self.random.choice([each for each in isr if each != row.leader]))
        image = self.harness.controller.image
        eligible = all(image.is_active(each) for each in isr)
        if eligible:
            for each in set(isr) - set(row.isr):
                self.model.catches_up(name, index, each)
        (result,) = await alter(self.harness, asked(self.harness, isr, name, index), leader=row.leader, name=name)
        after = self.harness.partition(name, index)
        assert bool(result.error_code) is not eligible or after.leader != row.leader
        return not result.error_code

    async def write(self) -> bool:
        self.model.write(*self._partition())
        return True

    async def elect(self) -> bool:
        kind = UNCLEAN if self.model.unclean and self.random.random() < 0.5 else PREFERRED
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=1000)
        response = await self.harness.controller.elect_leaders(Caller(2), request)
        results = [each for topic in response.replica_election_results for each in topic.partition_result]
        return any(each.error_code == 0 for each in results)

    async def reassign(self) -> bool:
        name, index = self._partition()
        wanted = None if self.random.random() < 0.3 else self.random.sample(BROKERS, TOPICS[name])
        made = AlterPartitionReassignmentsRequest
        partition = made.ReassignablePartition(partition_index=index, replicas=wanted)
        request = made(topics=[made.ReassignableTopic(name=name, partitions=[partition])], timeout_ms=1000)
        try:
            response = await self.harness.controller.alter_partition_reassignments(Caller(1), request)
        except KafkaError:
            return False
        return response.responses[0].partitions[0].error_code == 0


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("elr", [False, True])
def test_partitions_keep_their_invariants_when_brokers_come_and_go(elr: bool, unclean: bool) -> None:
    done: dict[str, int] = {}
    for seed in range(SEED, SEED + 25):
        random = Random(seed)
        least_isr = random.choice((1, 2)) if elr else 1

        async def told(harness: Any, random: Random = random, least_isr: int = least_isr) -> dict[str, int]:
            await harness.brokers(*BROKERS)
            for name, factor in TOPICS.items():
                configs = {
                    "min_insync_replicas": str(least_isr),
                    "unclean_leader_election_enable": str(unclean).lower(),
                }
                await create(harness, name, *[random.sample(BROKERS, factor) for _ in range(PARTITIONS)], **configs)
            model = Model(harness, elr=elr, unclean=unclean, least_isr=least_isr)
            model.look()
            story = Story(harness, model, random)
            for _ in range(STEPS):
                await story.step()
            await story.settle()
            return story.done

        try:
            for name, count in controllers.run(told, level=30 if elr else 21).items():
                done[name] = done.get(name, 0) + count
        except AssertionError as error:
            raise AssertionError(f"KAFKACORE_SEED={seed}: {error}") from error
    assert len(done) == 8 + elr, done
    assert min(done.values()) > 2, done
