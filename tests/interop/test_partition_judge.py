"""Random histories of a partition, compared step by step with Apache Kafka's own kafka.cluster.Partition.

Both sides receive the same inputs: roles, Fetches of followers and clients, appends, answers of the controller, broker
states, and times. After each step, both must have the same high watermark, ISR (committed and maximal), epochs, log,
epoch history and followers' positions, and must have answered with the same error. If a history differs, the test
prints the shortest list of commands that still shows the difference.

These differences are intended:

- After a re-election of the same leader, we count a follower's position only from its first Fetch in the new epoch.
  Apache Kafka keeps the old positions. So our high watermark may be below Apache Kafka's until the followers have
  fetched.
- While the controller has not answered a proposed ISR, new metadata may arrive with an unchanged partition epoch. We
  then keep the proposal. Apache Kafka forgets it, although the controller may still commit it. So our maximal ISR may
  have more members, and our high watermark may be below Apache Kafka's.
- If a follower's Fetch advances the high watermark, our answer contains the new value. Apache Kafka's answer contains
  the old value.
- If a follower's position or a high watermark is inside a batch, we leave it there. Apache Kafka moves it to the
  beginning of the batch. In these histories, positions and high watermarks are always at the ends of batches, because
  followers store whole batches.
- Our high watermark also advances when time passes or a broker's state changes. In Apache Kafka, it advances only at
  the next event, such as a Fetch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random

import pytest

from brokers import need_jars
from kafkacore.protocol.errors import ErrorCode
from partition_pair import (
    LAG_MS,
    METADATA_IS_NEWER,
    NODE,
    NOT_APPLIED,
    RELEASE,
    START_MS,
    Answer,
    Ours,
    Theirs,
    batch,
    epoch,
    ids,
    joined,
)
from seeds import SEED

pytestmark = [pytest.mark.peer("apache-4.3"), pytest.mark.timeout(300)]

STORIES = int(os.environ.get("KAFKACORE_PARTITION_STORIES", "30"))
STEPS = 100
OTHERS = (2, 3, 4)
# Each of these outcomes occurs in at least one history of a run.
EXPECTED = {
    *(f"error {int(each)}" for each in (
        ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE,
    )),
    f"reached {int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)}", "reached -", "reached 0",
    "grows", "shrinks", "diverges", "re-elected", "repeated",
}  # fmt: skip


class DifferenceError(Exception):
    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class Pair:
    """Runs commands on both sides, and compares the results."""

    def __init__(self, theirs: Theirs, path: Path, topic: str, min_isr: int) -> None:
        self._theirs, self.ours = theirs, Ours(path)
        self._new = f"new {topic} {LAG_MS} {min_isr}"
        self.state: Answer = {}  # the state of Apache Kafka's side
        self.seen: set[str] = set()
        self._forgotten: set[int] = set()  # followers whose positions our side dropped in a re-election
        self.run(self._new)
        self.run(f"time {START_MS}")

    def run(self, command: str) -> Answer:
        before = self.state
        its, mine = self._theirs.do(command), self.ours.do(command)
        was_led = before.get("role") == "leader"
        if was_led and its.get("role") == "leader" and _leader_epoch(its) != _leader_epoch(before):
            self.seen.add("re-elected")
            self._forgotten = {each for each, known in _followers(its).items() if known[0] != "-1"}
        if command.startswith("role") and its.get("inflight") == "false" and mine.get("inflight") == "true":
            self.seen.add("repeated")
            mine = self._withdraw(its, mine, before)
        self._compare(command, before, its, mine)
        self.state = its
        self._note(command, before, its)
        if command.startswith("role"):
            for each in sorted(self._forgotten):
                self._fetch_again(each, _followers(its)[each])
        return its

    def _withdraw(self, its: Answer, mine: Answer, before: Answer) -> Answer:
        assert its["epochs"] == before["epochs"]
        assert set(ids(its["maximal"])) <= set(ids(mine["maximal"]))
        assert int(mine["hw"]) <= int(its["hw"])
        now = self.ours.forget_proposal()
        return mine | now | {"hw_before": now["hw"]}

    def _fetch_again(self, follower: int, known: tuple[str, str, str]) -> None:
        end_offset, log_start, broker_epoch = known
        if int(end_offset) >= int(self.state["log"].split(":")[0]):
            for named in (broker_epoch, "-1"):
                command = f"fetch {follower} {named} {end_offset} {log_start} {_leader_epoch(self.state)} -"
                if self.run(command)["error"] == "0":
                    return

    def _compare(self, command: str, before: Answer, its: Answer, mine: Answer) -> None:
        known = _followers(mine)
        self._forgotten = {each for each in self._forgotten if each in known and known[each][0] == "-1"}
        for field in sorted(its.keys() | mine.keys()):
            one, other = its.get(field), mine.get(field)
            if field == "hw_before":
                same = self._forgotten or int(other or -1) >= int(one or -1)
            elif field == "hw":
                same = one == other or (self._forgotten and int(other or 0) <= int(one or 0))
            elif field == "seen" and one and other:
                same = other in (one, f"{mine['hw_before']}:{mine['hw_before']}:{one.split(':')[2]}")
            elif field == "low_now" and self._forgotten:
                same = True
            elif field == "followers":
                others = _followers(its)
                same = known.keys() == others.keys() and all(
                    known[each] == others[each] for each in known if each not in self._forgotten
                )
            else:
                same = one == other
            if not same:
                raise DifferenceError(field, f"{command}\n  {field}: Apache Kafka has {one}, ours has {other}")
        if "asked" in its and not command.startswith("refuse") and not self.ours.was_reported:
            raise DifferenceError("edge", f"{command}: nothing was reported for the ISR {its['asked']}")

    def _note(self, command: str, before: Answer, its: Answer) -> None:
        self.seen.add(f"error {its['error']}")
        if "reached" in its:
            self.seen.add(f"reached {its['reached']}")
        if its.get("diverges", "-1:-1") != "-1:-1":
            self.seen.add("diverges")
        if "asked" in its:
            self.seen.add("grows" if len(ids(its["asked"])) > len(ids(its["isr"])) else "shrinks")


def _leader_epoch(state: Answer) -> int:
    return int(state["epochs"].split(":")[0])


def _followers(state: Answer) -> dict[int, tuple[str, str, str]]:
    found = {}
    for each in filter(None, state.get("followers", "").split(",")):
        broker_id, end_offset, log_start, broker_epoch = each.split(":")
        found[int(broker_id)] = (end_offset, log_start, broker_epoch)
    return found


@dataclass(frozen=True)
class Committed:
    """A committed decision of the controller."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    recovery: int = 0

    def command(self) -> str:
        return (
            f"role {self.leader} {self.leader_epoch} {self.partition_epoch} {','.join(map(str, self.replicas))} "
            f"{joined(self.isr)} {self.recovery}"
        )


class Story:
    """A random history. Chooses each command depending on Apache Kafka's answers so far."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair, self.random, self.commands = pair, Random(seed), list[str]()
        self.now_ms = START_MS
        self.ends = {0}  # the offsets at which batches end
        self.brokers = {each: ("active", each * 10) for each in OTHERS}
        # The proposed ISR, its leader epoch and its partition epoch.
        self.asked: tuple[list[int], int, int] | None = None
        for each in OTHERS:
            self.run(f"broker {each} active {each * 10}")
        members = (1, *self.random.sample((2, 3), self.random.randint(0, 2)))
        self.committed = Committed(NODE, 1, 1, (1, 2, 3), members)
        self.published = [self.committed]
        self.run(self.committed.command())

    def run(self, command: str) -> Answer:
        self.commands.append(command)
        answer = self.pair.run(command)
        if "log" in answer:
            start, end = self.log
            self.ends = {each for each in self.ends if start <= each < end} | {start, end}
        if "asked" in answer:
            self.asked = (ids(answer["asked"]), *map(int, answer["epochs"].split(":")))
        return answer

    @property
    def log(self) -> tuple[int, int]:
        start, end = self.pair.state["log"].split(":")
        return int(start), int(end)

    @property
    def leads(self) -> bool:
        return self.pair.state["role"] == "leader"

    @property
    def epoch(self) -> int:
        return _leader_epoch(self.pair.state)

    def step(self) -> None:
        common = {self.fetch: 1, self.consume: 2, self.append: 1, self.wait: 4, self.broker: 3, self.look_up: 3}
        if self.leads:
            common |= {self.fetch: 36, self.append: 16, self.shrink: 8, self.reached: 4, self.delete: 2}
        else:
            common |= {self.follow: 14, self.note: 8, self.truncate: 5}
        common |= {self.decide: 4, self.repeat: 1}
        if self.asked is not None:
            common[self.answer] = 12
        if self.published[-1] != self.committed:
            common[self.publish] = 8
        [chosen] = self.random.choices(list(common), list(common.values()))
        chosen()

    # --- appends and reads ---

    def append(self) -> None:
        self.run(f"append {self.random.randint(1, 3)} {self.random.choice((1, -1))}")

    def fetch(self) -> None:
        random, (start, end) = self.random, self.log
        replica = random.choice((2, 2, 3, 3, 4))
        known = max(int(_followers(self.pair.state).get(replica, ("0",))[0]), 0)
        ends = sorted(self.ends)
        later = [each for each in ends if each >= known] or ends
        offset = random.choices(
            (end, random.choice(later), random.choice(ends), end + 2, start - 1), (40, 40, 12, 5, 3)
        )[0]
        broker_epoch = self.brokers[replica][1] + random.choices((0, -1, 1), (80, 10, 10))[0]
        named = "-1" if random.random() < 0.1 else str(broker_epoch)
        log_start = random.randint(0, start)
        self.run(f"fetch {replica} {named} {offset} {log_start} {self._current()} {self._last_fetched(offset)}")

    def consume(self) -> None:
        offset = self.random.randint(0, self.log[1] + 2)
        self.run(f"consume {offset} {self.random.randint(0, 1)} {self._current()} {self._last_fetched(offset)}")

    def _current(self) -> str:
        return self.random.choices((str(self.epoch), "-", str(self.epoch - 1), str(self.epoch + 1)), (84, 6, 5, 5))[0]

    def _last_fetched(self, offset: int) -> str:
        history = [tuple(map(int, each.split(":"))) for each in self.pair.state["history"].split(",") if each]
        right = max((each for each, begins in history if begins < offset), default=0)
        return self.random.choices(("-", str(right), str(self.random.randint(0, self.epoch + 1))), (50, 35, 15))[0]

    def reached(self) -> None:
        start, end = self.log
        self.run(f"reached {self.random.randint(start, end)}")

    def look_up(self) -> None:
        if self.random.random() < 0.5:
            self.run(f"latest {self._current()}")
        else:
            self.run(f"ends {self._current()} {self.random.randint(0, self.epoch + 1)}")

    def delete(self) -> None:
        high_watermark = int(self.pair.state["hw"])
        self.run(f"delete {self.random.choice((-1, high_watermark + 2, *sorted(self.ends)))}")

    # --- followers ---

    def follow(self) -> None:
        random, at = self.random, self.log[1]
        between = []
        batches, latest = b"", epoch(self.pair.state["history"].split(",")[-1].split(":")[0] or "-")
        for _ in range(random.randint(1, 2)):
            size = random.randint(1, 3)
            latest = random.choice((max(latest, 0), self.epoch))
            named = self.epoch + 1 if random.random() < 0.05 else latest
            batches += batch(size, base_offset=at, partition_leader_epoch=named)
            at += size
            between.append(at)
        self.ends.update(between)
        self.run(f"follow {self.epoch} {batches.hex()}")

    def note(self) -> None:
        start, end = self.log
        high_watermark = self.random.choice((*sorted(self.ends), end + 2))
        known = [each for each in sorted(self.ends) if each <= min(high_watermark, end)]
        self.run(f"note {high_watermark} {self.random.choice([start, *known])}")

    def truncate(self) -> None:
        start, end = self.log
        if self.random.random() < 0.1:
            self.run(f"restart {end + self.random.randint(0, 4)}")
        else:
            lowest = start if self.random.random() < 0.3 else min(int(self.pair.state["hw"]), end)
            self.run(f"truncate {self.random.choice(sorted(each for each in self.ends if each >= lowest))}")

    # --- time and brokers ---

    def wait(self) -> None:
        self.now_ms += self.random.choice((100, 2_000, 6_000, LAG_MS, LAG_MS + 1, 30_000))
        self.run(f"time {self.now_ms}")

    def shrink(self) -> None:
        self.run("shrink")

    def broker(self) -> None:
        each = self.random.choice(OTHERS)
        state, broker_epoch = self.brokers[each]
        state = self.random.choices(("active", "fenced", "leaving", "gone"), (70, 12, 10, 8))[0]
        broker_epoch += self.random.choice((0, 0, 1))
        self.brokers[each] = (state, broker_epoch)
        self.run(f"broker {each} {state} {broker_epoch}")

    # --- the controller ---

    def answer(self) -> None:
        assert self.asked is not None
        isr, leader_epoch, partition_epoch = self.asked
        self.asked = None
        now = self.committed
        if (leader_epoch, partition_epoch) != (now.leader_epoch, now.partition_epoch):
            stale = f"agree {joined(isr)} {leader_epoch} {partition_epoch - self.random.randint(0, 1)}"
            refusals = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION)
            self.run(self.random.choice((stale, f"refuse {int(self.random.choice(refusals))}")))
        elif self.random.random() < 0.25:
            codes = (*NOT_APPLIED, *METADATA_IS_NEWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
            self.run(f"refuse {int(self.random.choice(codes))}")
        else:
            self.committed = replace(now, isr=tuple(isr), partition_epoch=now.partition_epoch + 1, recovery=0)
            if self.random.random() < 0.2:
                self.publish()  # publishes the metadata before the answer
            self.run(f"agree {joined(isr)} {leader_epoch} {self.committed.partition_epoch}")
            if self.random.random() < 0.4:
                self.publish()

    def publish(self) -> None:
        self.published.append(self.committed)
        self.run(self.committed.command())

    def repeat(self) -> None:
        """Sends metadata that the broker has already seen."""
        self.run(self.random.choice(self.published[-3:]).command())

    def decide(self) -> None:
        random, now = self.random, self.committed
        if random.random() < 0.3 and len(now.isr) > 1:
            gone = random.choice([each for each in now.isr if each != now.leader])
            made = replace(now, isr=tuple(each for each in now.isr if each != gone))
        elif random.random() < 0.3:
            replicas = random.choice(((1, 2, 3), (1, 2, 3, 4), (1, 2), (1, 3, 4)))
            replicas = replicas if now.leader in replicas else (*replicas, now.leader)
            made = replace(now, replicas=replicas, isr=tuple(each for each in now.isr if each in replicas))
        else:
            unclean = random.random() < 0.2
            leader = NODE if unclean or now.leader != NODE else random.choice(now.isr)
            left = [each for each in now.isr if each != leader and random.random() < 0.7]
            isr = (leader,) if unclean else (leader, *left)
            made = replace(now, leader=leader, leader_epoch=now.leader_epoch + 1, isr=isr, recovery=int(unclean))
        self.committed = replace(made, partition_epoch=now.partition_epoch + 1)
        if random.random() < 0.6:
            self.publish()


class Lives:
    def __init__(self, theirs: Theirs, path: Path) -> None:
        self._theirs, self._path, self._numbers = theirs, path, count()
        self.seen: set[str] = set()

    def pair(self, min_isr: int) -> Pair:
        number = next(self._numbers)
        return Pair(self._theirs, self._path / str(number), f"story{number}", min_isr)

    def live(self, seed: int) -> None:
        min_isr = 1 + seed % 2
        pair = self.pair(min_isr)
        story = None
        try:
            story = Story(pair, seed)
            for _ in range(STEPS):
                story.step()
        except DifferenceError as difference:
            commands = story.commands if story is not None else []
            shortest = self._shortest(commands, difference, min_isr)
            told = "\n".join(shortest)
            pytest.fail(f"seed {seed}, min.insync.replicas {min_isr}: {difference}\nafter\n{told}", pytrace=False)
        finally:
            pair.ours.close()
            self.seen |= pair.seen

    def _shortest(self, commands: list[str], difference: DifferenceError, min_isr: int) -> list[str]:
        """Returns the shortest list of commands, found by removing commands as long as the same field still differs."""
        size = max(len(commands) // 2, 1)
        while size:
            at = 0
            while at < len(commands):
                fewer = commands[:at] + commands[at + size :]
                if self._differs(fewer, min_isr) == difference.field:
                    commands = fewer
                else:
                    at += size
            size //= 2
        return commands

    def _differs(self, commands: list[str], min_isr: int) -> str | None:
        pair = self.pair(min_isr)
        try:
            for each in commands:
                pair.run(each)
        except DifferenceError as difference:
            return difference.field
        except (AssertionError, ValueError):
            return None
        finally:
            pair.ours.close()
        return None


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    need_jars(RELEASE)
    path = tmp_path_factory.mktemp("partitions")
    (path / "theirs").mkdir()
    theirs = Theirs(path / "theirs")
    yield Lives(theirs, path)
    theirs.close()


def test_partition_goes_through_random_lives_as_apache_kafka_does(lives: Lives) -> None:
    for seed in range(SEED * 1_000, SEED * 1_000 + STORIES):
        lives.live(seed)
    assert lives.seen >= EXPECTED, EXPECTED - lives.seen
