"""A log directory on which Apache Kafka and our node run alternately. The tests check that each finds what the other
has written.

`Directory` holds the files and settings of a node, and the broker that currently runs on them. `Story` runs the turns.
In each turn a broker starts and must find everything that the previous broker described. It then writes more data and
describes the new contents. SIGTERM or SIGKILL ends the turn.
"""

import json
import shutil
import subprocess
import uuid
from pathlib import Path

from brokers import APACHE, InTurns
from kafkacore._fast.record.batch import Batches, ControlRecordType
from kafkacore.storage import quorum_state
from kafkacore.storage.checkpoints import CLEANER_OFFSET, LeaderEpochCheckpoint, OffsetCheckpoint
from kafkacore.storage.names import parse_checkpoint_name
from processes import ROOT, wait_until

OURS = "kafkacore"
TOPICS = ("codecs", "stamped", "transactions", "compacted", "ids")
PARTITIONS = {"codecs": 2, "stamped": 1, "transactions": 2, "compacted": 2, "ids": 1}
NEW_BATCHES = 1000
METADATA = "__cluster_metadata-0"
DUMPED = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
# Apache Kafka runs with an authorizer. After a kill, the next broker must wait until the session of the killed broker
# has ended.
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.cleaner.threads": "1",
}
# Our node has no access control and so runs without an authorizer. It writes a snapshot after every batch of metadata,
# and the metadata log then begins at that snapshot.
OUR_SETTINGS = {
    "authorizer.class.name": "",
    "ignore.acls": "true",  # Apache Kafka's turns add ACLs
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.max.retention.bytes": "1",
}
# The feature levels of 3.9 are upgraded to these feature levels of 4.3.
UPGRADE = ("metadata.version=30", "transaction.version=2", "group.version=1", "eligible.leader.replicas.version=1")


class Directory(InTurns):
    """The directory of a node. `maker` (a release, or OURS) formats the directory with the features of `release`. After
    that, no broker runs yet."""

    def __init__(self, path, tools, *, release, maker, dynamic, directories):
        self.tools, self.maker, self.dynamic = tools, maker, dynamic
        self.log_dirs = [Path(path) / name for name in "ab"[:directories]]
        super().__init__(release, path, SETTINGS)

    def settings(self, overrides):
        given = super().settings(overrides) | {"log.dirs": ",".join(map(str, self.log_dirs))}
        if self.dynamic:
            del given["controller.quorum.voters"]
            given["controller.quorum.bootstrap.servers"] = self.controller
        return given

    def java(self, tool, *arguments):
        """Formats the directory with the tool of its maker."""
        del tool
        options = ("--standalone",) if self.dynamic else ()
        if self.maker == OURS:
            release = ("--release-version", ".".join(self.release.split(".")[:2]))
            run_ours("storage", *arguments, *options, *release)
        else:
            self.tools[self.name].run("kafka-storage", *arguments, *options)

    def give_to(self, name):
        if name == OURS:
            self.give_to_us(*(f"--override={key}={value}" for key, value in OUR_SETTINGS.items()))
        else:
            self.name, self.release = name, APACHE[name]
            self.give_to_apache()

    def place(self, partition):
        """Returns the log directory whose files contain the partition."""
        (found,) = (each for each in self.log_dirs if (each / partition).is_dir())
        return found

    def leader_epochs(self, partition):
        return LeaderEpochCheckpoint(str(self.place(partition) / partition)).read()

    def snapshots(self):
        found = (parse_checkpoint_name(path.name) for path in (self.log_dirs[0] / METADATA).glob("*.checkpoint"))
        return sorted(each for each in found if each)

    def begins_behind(self, snapshots):
        """Returns whether the metadata log has exactly one snapshot, and that one is newer than `snapshots`."""
        found = self.snapshots()
        return len(found) == 1 and found > snapshots[-1:]

    def quorum_state_version(self):
        return json.loads((self.log_dirs[0] / METADATA / quorum_state.NAME).read_bytes())["data_version"]

    def batches(self, topic, partition="[0-9]"):
        """Returns the batches of one partition, or of all partitions of a topic, in the order of their offsets."""
        segments = (path for each in self.log_dirs for path in sorted(each.glob(f"{topic}-{partition}/*.log")))
        return [batch for path in segments for batch in Batches(path.read_bytes())]


def run_ours(*arguments):
    command = [ROOT / ".venv" / "bin" / "kafkacore", *arguments]
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=60).stdout.decode()


def partitions():
    return [f"{topic}-{number}" for topic in TOPICS for number in range(PARTITIONS[topic])]


def offset(line):
    return int(line.split()[0])


def newest(batches):
    """Returns the offset and the value of the newest record of each key. Ignores records of aborted transactions."""
    found, undecided = {}, {}
    for batch in batches:
        if not batch.is_control:
            into = undecided.setdefault(batch.producer_id, {}) if batch.is_transactional else found
            into.update({record.key: (record.offset, record.value) for record in batch})
            continue
        (record,) = batch
        ended = undecided.pop(batch.producer_id, {})
        if record.control_type == ControlRecordType.COMMIT:
            found.update((key, last) for key, last in ended.items() if last[0] > found.get(key, (-1,))[0])
    assert not undecided
    return found


def records_in(batch):
    return sum(1 for _ in batch)


def difference(one, other, at="it"):
    """Returns a line of text with the first difference between two outputs of `java-reads`. Returns an empty string if
    they are equal."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next((found for key in one if (found := difference(one[key], other[key], f"{at}[{key}]"))), "")
    if isinstance(one, list) and isinstance(other, list):
        for index, (left, right) in enumerate(zip(one, other, strict=False)):
            if left != right:
                return f"{at}[{index}]: {left!r}, then {right!r}"
        return "" if len(one) == len(other) else f"{at}: {len(one)}, then {len(other)}: {(one + other)[-1]!r}"
    return "" if one == other else f"{at}: {one!r}, then {other!r}"


class Story:
    """The turns. `turns` names the broker of each turn. `ends` says how each turn but the last one ends: "stop" or
    "kill"."""

    def __init__(self, directory, tools, turns, ends, *, upgrades=False):
        self.directory, self.tools, self.turns, self.ends = directory, tools, turns, ends
        self.upgrades = upgrades
        self.told = self.places = self.half_moved = None
        self.administered, self.features, self.epochs, self.producer_ids = [], set(), {}, set()

    def run(self):
        for number, (name, end) in enumerate(zip(self.turns, [*self.ends, "stop"], strict=True)):
            before = self.directory.snapshots()
            self.directory.give_to(name)
            self.find(name)
            self.write(name, number)
            if name == OURS:
                wait_until(lambda last=before: self.directory.begins_behind(last), what="a new snapshot of ours")
            self.tell(name)
            status = getattr(self.directory, end)()
            assert end == "kill" or name != OURS or status == 0, self.directory.child.tail()
            assert self.errors() == [], self.directory.child.tail()
            self.hold_producer_ids(name)
            self.hold_leader_epochs()
            self.hold_dumps()
            self.leave_half_moved(number)
        expected = int(self.directory.dynamic or self.upgrades)
        assert self.directory.quorum_state_version() == expected

    def errors(self):
        """Returns the errors that our node has logged. Ignores the errors about Apache Kafka's topic of transactions.
        Our node must log them, because it leads a partition of this topic."""
        lines = self.directory.log.read_text(errors="replace").splitlines()
        return [line for line in lines if " ERROR kafkacore" in line and "__transaction_state" not in line]

    def ask(self, tool, *arguments):
        command, *rest = arguments
        return self.tools.run(tool, command, self.directory.bootstrap, *rest).lines

    def read(self):
        return json.loads(self.tools.run("java-reads", self.directory.bootstrap, *TOPICS).out)

    # --- checks at the start of a turn ---

    def find(self, name):
        if name != OURS and self.administered:
            found = self.ask("java-administration", "tell")
            assert found == self.administered, difference(self.administered, found, name)
        # An old release does not list features that later releases introduced.
        found = set(self.ask("java-administration", "features"))
        assert self.features <= found or name == "apache-3.9", (self.features, found)
        if self.told is None:
            return
        if self.half_moved:
            partition, source = self.half_moved
            self.finish_move(name, lambda: self.described().get(partition, [source])[0] != source, partition)
            self.places[partition] = self.described()[partition]
        assert self.described() == self.places
        found = self.read()
        assert found == self.told, f"{name} has {difference(self.told, found)}"

    def finish_move(self, name, moved, partition):
        """Waits until a partition has been moved. If the broker is fenced during a move, Apache Kafka does not continue
        the move until the broker restarts, so this method restarts it."""
        try:
            wait_until(moved, what=f"the move of {partition}")
        except TimeoutError:
            log = self.directory.log.read_text(errors="replace")
            if name == OURS or f"Partition {partition} marked as failed" not in log:
                raise
            self.directory.stop()
            self.directory.give_to(name)
            wait_until(moved, what=f"the move of {partition} after a second start")

    def described(self):
        """Returns the directory, the size and the lag of each partition that is in a single directory, as
        DescribeLogDirs shows them."""
        lines = [line.split("\t") for line in self.ask("java-log-dirs", "describe", 1)]
        directories = {line[0]: line[2:] for line in lines if line[1] == "-"}
        assert directories == {str(each): ["true", "none"] for each in self.directory.log_dirs}
        rows = [line for line in lines if line[1] in partitions()]
        moving = {line[1] for line in rows if line[-1] == "true"}
        return {line[1]: [line[0], *line[2:4]] for line in rows if line[1] not in moving}

    # --- changes during a turn ---

    def write(self, name, number):
        if self.told is None:
            self.ask("java-writes", "create")
        if name != OURS:
            self.administer()
            self.ask("java-writes", "transactions", number)
        self.ask("java-writes", "turn", number)
        self.compact(name)
        self.move(number)

    def administer(self):
        """Makes Apache Kafka write metadata that only Apache Kafka uses, in its first turn. In its next turn, ends the
        open transactions."""
        if self.administered:
            self.ask("java-writes", "end")
            if self.upgrades:
                self.upgrade()
        else:
            self.ask("java-administration", "write")
            self.administered = self.ask("java-administration", "tell")

    def upgrade(self):
        quorum = () if self.directory.dynamic else ("kraft.version=1",)
        self.ask("java-administration", "upgrade", *UPGRADE, *quorum)

    def compact(self, name):
        """Waits until the log cleaner has compacted everything except the active segments. Checks that the cleaner has
        kept the newest record of each key and removed some records.

        Partition 0 is the one that must lose records. In other partitions, the active segment can contain all records:
        if it begins with a transaction marker, which has the present time, records with older times do not roll the
        segment.
        """
        before = [self.directory.batches("compacted", number) for number in range(PARTITIONS["compacted"])]
        self.ask("java-writes", "lag", 0)
        wait_until(self.compacted, what=f"the end of {name}'s log cleaning")
        self.ask("java-writes", "lag", "-")
        after = [self.directory.batches("compacted", number) for number in range(PARTITIONS["compacted"])]
        assert list(map(newest, after)) == list(map(newest, before)), name
        assert sum(map(records_in, after[0])) < sum(map(records_in, before[0])), name

    def compacted(self):
        for number in range(PARTITIONS["compacted"]):
            partition = f"compacted-{number}"
            place = self.directory.place(partition)
            cleaned = OffsetCheckpoint(str(place), CLEANER_OFFSET).read()
            active = max((place / partition).glob("*.log"))
            if cleaned.get(("compacted", number), 0) < int(active.stem):
                return False
        return True

    def move(self, number):
        """Moves a partition to the other log directory, if the node has two. Each turn moves a different partition."""
        if len(self.directory.log_dirs) == 1:
            return
        topic = ("codecs", "transactions", "compacted")[number % 3]
        partition = f"{topic}-0"
        target = self.other(self.directory.place(partition))
        self.ask("java-log-dirs", "alter", 1, topic, 0, target)
        wait_until(lambda: self.described().get(partition, [""])[0] == str(target), what=f"the move of {partition}")

    def other(self, place):
        return next(each for each in self.directory.log_dirs if each != place)

    def tell(self, name):
        self.told, self.places = self.read(), self.described()
        self.features = set(self.ask("java-administration", "features"))
        committed, uncommitted = self.told["read_committed"], self.told["read_uncommitted"]
        for partition, each in uncommitted.items():
            assert each["position"] == each["end"], partition
            assert committed[partition]["position"] == committed[partition]["end"], partition
        # The test needs gaps left by compaction, and also open and aborted transactions.
        for number in range(PARTITIONS["compacted"]):
            found = uncommitted[f"compacted-{number}"]
            assert len(found["records"]) < found["end"] - found["first"]
        if name == OURS:
            return
        for number in range(PARTITIONS["transactions"]):
            partition = f"transactions-{number}"
            all_of_it, settled = uncommitted[partition], committed[partition]
            assert settled["end"] < all_of_it["end"]
            aborted = {offset(line) for line in all_of_it["records"]} - {offset(line) for line in settled["records"]}
            assert min(aborted) < settled["end"]

    # --- checks of the files after a turn ---

    def hold_producer_ids(self, name):
        """Checks that the producer of this turn, which wrote a thousand batches, got a new producer id and wrote no
        batch twice."""
        new = self.directory.batches("ids")[-NEW_BATCHES:]
        (producer_id,) = {batch.producer_id for batch in new}
        assert [batch.base_sequence for batch in new] == list(range(NEW_BATCHES))
        assert {batch.producer_epoch for batch in new} == {0}
        assert producer_id >= 0 and producer_id not in self.producer_ids, f"{name} reused {producer_id}"
        for topic in TOPICS:
            self.producer_ids |= {batch.producer_id for batch in self.directory.batches(topic)}

    def hold_leader_epochs(self):
        """Checks that an epoch's start offset never changes if the epoch has records. A copied log lacks the epochs
        without records."""
        for partition in partitions():
            found, before = self.directory.leader_epochs(partition), self.epochs.get(partition, [])
            assert found == sorted(found) and found[-1:] >= before[-1:], (partition, before, found)
            assert set(before) <= set(found) or len(self.directory.log_dirs) > 1, (partition, before, found)
            self.epochs[partition] = found

    def hold_dumps(self):
        """Checks that kafka-dump-log and our dump-log print the same text for every file."""
        found = sorted(path for each in self.directory.log_dirs for path in each.glob("*/*") if path.suffix in DUMPED)
        logs = [path for path in found if path.suffix == ".log"]
        others = [path for path in found if path.suffix != ".log"]
        for paths, options in ((logs, ("--deep-iteration", "--print-data-log")), (others, ())):
            files = ",".join(map(str, paths))
            theirs = self.tools.run("kafka-dump-log", "--files", files, *options).lines
            ours = run_ours("dump-log", "--files", files, *options).splitlines()
            assert ours == theirs, difference(theirs, ours, "kafka-dump-log's, then ours")

    def leave_half_moved(self, number):
        """Copies the files of a partition, as if the broker was killed during a move: the future log is in one
        directory, and the current log is in the other."""
        if len(self.directory.log_dirs) == 1:
            return
        partition = ("codecs-1", "transactions-1", "compacted-1")[number % 3]
        source = self.directory.place(partition)
        shutil.copytree(source / partition, self.other(source) / f"{partition}.{uuid.uuid4().hex}-future")
        self.half_moved = partition, str(source)
