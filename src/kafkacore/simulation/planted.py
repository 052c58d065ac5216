"""Bugs that tests plant on purpose, to prove that the simulator finds such bugs.

A planted bug replaces an attribute of a Python class or module. Faults, clients and checkers are the same as without
the bug. Each bug names the checkers that can find it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from kafkacore._fast.base.debug_checks import PLANTED
from kafkacore._fast.record.batch import Batches
from kafkacore.raft.file_log import ANY_EPOCH
from kafkacore.raft.roles import NOBODY, Leader
from kafkacore.simulation.checkers import elections, leaders, logs, metadata, records, replication
from kafkacore.simulation.checkers.progress import Progress
from kafkacore.simulation.plant import Patch, PlantedBug, Wrong, one, planted
from kafkacore.simulation.planted_native import NATIVE_BUGS
from kafkacore.simulation.planted_replication import REPLICATION_BUGS

__all__ = ["BUGS", "BY_NAME", "HUNTED", "NATIVE", "NATIVE_HUNTED", "RARE", "PlantedBug", "planted"]

RAFT: Final = "kafkacore.raft"
NEVER: Final = (1 << 63) - 1


# --- elections ---


def _any_log_will_do(right: Wrong) -> Wrong:
    def grants(self: Any, key: Any, up_to_date: bool, pre_vote: bool) -> Any:
        return right(self, key, True, pre_vote)

    return grants


def _votes_again(right: Wrong) -> Wrong:
    def grants(self: Any, key: Any, up_to_date: bool, pre_vote: bool) -> Any:
        if pre_vote or isinstance(self._replica.role, Leader):
            return right(self, key, up_to_date, pre_vote)
        return up_to_date

    return grants


def _nobody_waits_for_the_state(right: Wrong) -> Wrong:
    def enter(self: Any, *arguments: Any, **named: Any) -> None:
        required = self.required
        right(self, *arguments, **named)
        self.required = required

    return enter


def _forgets_the_vote(right: Wrong) -> Wrong:
    def start(self: Any, state: Any, last_epoch: int) -> None:
        right(self, state, last_epoch)
        self.voted, self.leader_id = None, NOBODY

    return start


def _forgets_the_epoch(right: Wrong) -> Wrong:
    def start(self: Any, state: Any, last_epoch: int) -> None:
        right(self, None, last_epoch)

    return start


# --- replication ---


def _counts_earlier_epochs(right: Wrong) -> Wrong:
    def advance(self: Any) -> None:
        role = self._replica.role
        if not isinstance(role, Leader):
            return
        start, role.epoch_start_offset = role.epoch_start_offset, -1
        try:
            right(self)
        finally:
            role.epoch_start_offset = start

    return advance


def _counts_itself_alone(right: Wrong) -> Wrong:
    def advance(self: Any) -> None:
        right(self)
        replica = self._replica
        role = replica.role
        durable = replica.syncs.durable_offset
        if isinstance(role, Leader) and durable > max(role.epoch_start_offset, replica.high_watermark):
            replica.high_watermark = durable
            self.wake_parked()

    return advance


def _syncs_nothing(right: Wrong) -> Wrong:
    def take(self: Any) -> None:
        self.durable_offset = self._log.end_offset

    return take


def _sends_before_the_sync(right: Wrong) -> Wrong:
    def send(self: Any, to: Any, request: Any, after_sync: bool = False) -> None:
        right(self, to, request)

    return send


def _overlooks_divergence(right: Wrong) -> Wrong:
    def place(self: Any, offset: int, epoch: int) -> Any:
        log = self._replica.log
        return None if log.start_offset <= offset <= log.end_offset else right(self, offset, epoch)

    return place


def _keeps_one_batch(right: Wrong) -> Wrong:
    def truncate(self: Any, end_offset: int) -> None:
        kept = self.read(end_offset, 1) if end_offset < self.end_offset else b""
        if len(kept) > _LAST_DELTA_AT + 4:
            end_offset += int.from_bytes(kept[_LAST_DELTA_AT : _LAST_DELTA_AT + 4], "big") + 1
        right(self, min(end_offset, self.end_offset))

    return truncate


def _keeps_the_tail(right: Wrong) -> Wrong:
    def begin(self: Any, snapshot_id: Any) -> None:
        if self.end_offset > snapshot_id.offset:
            self.trim(snapshot_id.offset)
        else:
            right(self, snapshot_id)

    return begin


def _leads_on_when_deposed(right: Wrong) -> Wrong:
    def hear(self: Any, epoch: int, *arguments: Any, **named: Any) -> Any:
        return not isinstance(self.role, Leader) and right(self, epoch, *arguments, **named)

    return hear


def _follows_a_deposed_leader(right: Wrong) -> Wrong:
    def on_begin_epoch(self: Any, token: Any, request: Any) -> None:
        replica = self._replica
        asked = request.topics[0].partitions[0]
        if asked.leader_epoch < replica.epoch and not isinstance(replica.role, Leader):
            replica.become_follower(replica.epoch, asked.leader_id, self._listener(request.leader_endpoints))
            replica.reply(token, request, error_code=0)
        else:
            right(self, token, request)

    return on_begin_epoch


def _serves_later_epochs(right: Wrong) -> Wrong:
    def leader_only_error(self: Any, epoch: int) -> Any:
        replica = self._replica
        return right(self, replica.epoch if isinstance(replica.role, Leader) and epoch > replica.epoch else epoch)

    return leader_only_error


def _passes_on_before_it_writes(right: Wrong) -> Wrong:
    def append(self: Any, data: bytes) -> bool:
        unwritten = vars(self).setdefault(_UNWRITTEN, [])
        if unwritten or not right(self, data):
            unwritten.append(data)
            for batch in Batches(data):
                self.epochs.note(batch.partition_leader_epoch, batch.base_offset)
                self._recent.append(batch.base_offset, batch.next_offset, bytes(batch.data))
                self._end_offset = batch.next_offset
        return True

    return append


def _write_the_rest(log: Any) -> None:
    unwritten = vars(log).get(_UNWRITTEN, [])
    while unwritten:
        log._handle.append_replicated(unwritten[0], ANY_EPOCH)
        unwritten.pop(0)


def _writes_the_rest_first(right: Wrong) -> Wrong:
    def method(self: Any, *arguments: Any) -> Any:
        _write_the_rest(self)
        return right(self, *arguments)

    return method


def _syncs_when_the_rest_is_written(right: Wrong) -> Wrong:
    def begin_sync(self: Any, sync: Any) -> None:
        async def later() -> None:
            await self._blocking(_write_the_rest, self._log)
            if self._syncing is sync:
                right(self, sync)

        if not vars(self._log).get(_UNWRITTEN):
            right(self, sync)
        else:
            self._syncing = sync
            self._spawn(later())

    return begin_sync


# --- controllers and brokers ---


def _leaves_the_leaderships(right: Wrong) -> Wrong:
    def fence(image: Any, settings: Any, *brokers: Any) -> Any:
        return right(image, settings, *brokers)[-len(brokers) :]

    return fence


def _leaves_out_configs(right: Wrong) -> Wrong:
    def records_of(image: Any) -> Any:
        return (record for record in right(image) if record.NAME != "ConfigRecord")

    return records_of


def _forgets_the_leases(right: Wrong) -> Wrong:
    def on_leading(self: Any, epoch: int) -> None:
        right(self, epoch)
        for broker_id in self.image.brokers:
            self._liveness.gone(broker_id)

    return on_leading


def _hears_former_lives(right: Wrong) -> Wrong:
    def check_epoch(image: Any, broker_id: int, epoch: int) -> Any:
        broker = image.brokers.get(broker_id)
        return right(image, broker_id, epoch if broker is None or epoch > broker.epoch else broker.epoch)

    return check_epoch


def _syncs_no_record(right: Wrong) -> Wrong:
    def settings(**fields: Any) -> Any:
        return right(**fields | {"flush_messages": NEVER})

    return settings


_LAST_DELTA_AT: Final = 23  # offset of the last offset delta in a batch's header
_UNWRITTEN: Final = "unwritten"
_FILE_LOG: Final = f"{RAFT}.file_log:FileLog"


def _logs(name: str, wrong: Callable[[Wrong], Wrong]) -> tuple[Patch, ...]:
    return Patch(f"{RAFT}.log:MemoryLog", name, wrong), Patch(_FILE_LOG, name, wrong)


BUGS: Final = (
    PlantedBug(
        "vote-to-a-shorter-log",
        "A voter grants its vote without comparing the ends of the logs.",
        one(f"{RAFT}.election:Elections", "_grants", _any_log_will_do),
        (elections.VotesGoToCompleteLogs,),
    ),
    PlantedBug(
        "two-votes-in-an-epoch",
        "A voter grants its vote to every candidate of an epoch.",
        one(f"{RAFT}.election:Elections", "_grants", _votes_again),
        (elections.VotesPersist, elections.ElectionSafety),
    ),
    PlantedBug(
        "vote-before-it-is-on-disk",
        "Messages do not wait until the epoch and the vote are on disk.",
        one(f"{RAFT}.term:Term", "enter", _nobody_waits_for_the_state),
        (elections.VotesPersist,),
    ),
    PlantedBug(
        "vote-forgotten-at-restart",
        "A restarted voter does not read its vote from quorum-state.",
        one(f"{RAFT}.term:Term", "__init__", _forgets_the_vote),
        (elections.VotesPersist, elections.ElectionSafety),
    ),
    PlantedBug(
        "epoch-forgotten-at-restart",
        "A restarted voter takes its epoch only from the log.",
        one(f"{RAFT}.term:Term", "__init__", _forgets_the_epoch),
        (elections.VotesPersist, elections.EpochsGrow),
    ),
    PlantedBug(
        "high-watermark-from-a-stale-epoch",
        "A leader commits records of earlier epochs before one of its own.",
        one(f"{RAFT}.replication:Replication", "advance_high_watermark", _counts_earlier_epochs),
        (logs.CommittedStays,),
    ),
    PlantedBug(
        "committed-before-the-majority",
        "A leader commits records that are only on its own disk.",
        one(f"{RAFT}.replication:Replication", "advance_high_watermark", _counts_itself_alone),
        (logs.CommittedStays,),
    ),
    PlantedBug(
        "lost-sync",
        "A voter reports a sync of the metadata log that it never made.",
        one(f"{RAFT}.syncs:Syncs", "take", _syncs_nothing),
        (logs.CommittedStays,),
    ),
    PlantedBug(
        "fetch-before-the-sync",
        "A follower asks for the next records before its last ones are on disk.",
        one(f"{RAFT}.replica:Replica", "send", _sends_before_the_sync),
        (logs.CommittedStays,),
    ),
    PlantedBug(
        "stale-controller-writes",
        "A deposed controller does not step down, and voters of later epochs take its records.",
        (
            Patch(f"{RAFT}.replica:Replica", "hear", _leads_on_when_deposed),
            Patch(f"{RAFT}.election:Elections", "on_begin_epoch", _follows_a_deposed_leader),
            Patch(f"{RAFT}.replication:Replication", "leader_only_error", _serves_later_epochs),
        ),
        (elections.ElectionSafety,),
    ),
    PlantedBug(
        "divergence-overlooked",
        "A leader does not compare the epoch of the follower's last record.",
        one(f"{RAFT}.replication:Replication", "_place", _overlooks_divergence),
        (logs.LogMatching, logs.CommittedStays),
    ),
    PlantedBug(
        "truncation-keeps-a-batch",
        "A follower that must truncate its log keeps one batch too many.",
        _logs("truncate", _keeps_one_batch),
        (Progress, logs.LogMatching),
    ),
    PlantedBug(
        "snapshot-over-a-diverging-tail",
        "A follower that downloads a snapshot keeps the records of its old log above the snapshot.",
        _logs("begin_at_snapshot", _keeps_the_tail),
        (logs.LogMatching,),
    ),
    PlantedBug(
        "passed-on-before-its-own-file",
        "A leader sends records to followers while it rolls a segment, and writes them into its own file only later.",
        (
            Patch(_FILE_LOG, "append", _passes_on_before_it_writes),
            *(
                Patch(_FILE_LOG, name, _writes_the_rest_first)
                for name in ("read", "truncate", "trim", "flush", "begin_at_snapshot", "close")
            ),
            Patch(f"{RAFT}.driver:RaftDriver", "_begin_sync", _syncs_when_the_rest_is_written),
        ),
        (logs.CommittedStays,),
        nodes="3c",
    ),
    PlantedBug(
        "fenced-broker-leads-on",
        "A fenced broker stays the leader of its partitions.",
        one("kafkacore.controller.quorum.cluster", "fence", _leaves_the_leaderships),
        (metadata.BrokersInImage,),
        nodes="3c2b",
    ),
    PlantedBug(
        "acknowledged-before-the-sync",
        "A broker ignores flush.messages, and acknowledges records that are only in memory.",
        one("kafkacore.storage.log_settings", "LogSettings", _syncs_no_record),
        (leaders.HighWatermarkIsSynced, replication.CommittedRecordsAgree, records.AcknowledgedRecordsStay),
        nodes="3c2b",
    ),
    PlantedBug(
        "snapshot-without-configs",
        "A snapshot of the metadata leaves out the configurations.",
        tuple(
            Patch(module, "records_of", _leaves_out_configs)
            for module in ("kafkacore.controller.quorum.controller", "kafkacore.server.metadata_feed")
        ),
        (metadata.ImagesAreEqual,),
        nodes="3c2b",
    ),
    PlantedBug(
        "lease-forgotten",
        "A new active controller does not count the silence of brokers that were registered before.",
        one("kafkacore.controller.quorum.controller:QuorumController", "on_leading", _forgets_the_leases),
        (metadata.SilentBrokersAreFenced,),
        nodes="3c2b",
    ),
    PlantedBug(
        "fenced-heartbeat-counted",
        "A controller accepts heartbeats of an earlier incarnation of a broker.",
        one("kafkacore.controller.quorum.cluster", "check_epoch", _hears_former_lives),
        (metadata.StaleBrokersAreRefused,),
        nodes="3c2b",
    ),
    *REPLICATION_BUGS,
)
NATIVE: Final = tuple(
    PlantedBug(f"native-{name}", f"Broken: {bug.guarantee}.", (), bug.found_by, bug.nodes, name)
    for name, bug in NATIVE_BUGS.items()
    if bug.found_by
)
# No test searches for these bugs, because a search of 60 s finds them too rarely. Each text says what must happen in a
# run that shows the bug.
RARE: Final = MappingProxyType(
    {
        "acknowledgement-outlives-its-leadership": (
            "A write must wait while its leader is deposed, and until this broker leads again. One run in eight has "
            "such a write whose records a checker can compare."
        ),
        "alter-partition-without-broker-epoch": (
            "An AlterPartition request must be late until the broker of the replica that it adds to the ISR has "
            "registered again and is unfenced. Nothing else may change the partition in between. This takes three "
            "faults in the right order."
        ),
        "fenced-heartbeat-counted": (
            "A heartbeat must be late until its sender has restarted and registered. One run in ten has such a "
            "heartbeat."
        ),
        "native-producer-epoch-ignored": (
            "A batch must be late until its producer has given up and has a batch of its next epoch in the log."
        ),
        "native-unfenced-follower": (
            "No run shows it. A follower that appends a late answer of a deposed leader truncates these records at its "
            "next fetch, and until then they differ only above the high watermark."
        ),
        "native-recovery-point-ahead": (
            "A segment must roll, and the broker must write a checkpoint before it has synced the roll. A power cut in "
            "these milliseconds must tear a batch of the old segment whose first and last sectors survive."
        ),
        "native-acknowledged-across-truncation": (
            "No run shows it. Only followers truncate, and a leader that becomes a follower first ends the "
            "acknowledgements of its leadership. This fence is for callers that truncate in another way."
        ),
    }
)
HUNTED: Final = tuple(bug for bug in BUGS if bug.name not in RARE)
NATIVE_HUNTED: Final = tuple(bug for bug in NATIVE if bug.name not in RARE)
BY_NAME: Final = {bug.name: bug for bug in (*BUGS, *(NATIVE if PLANTED else ()))}
