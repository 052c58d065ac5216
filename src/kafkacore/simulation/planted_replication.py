"""Planted bugs of replicated partitions. `planted.py` explains how tests plant them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ListOffsetsResponse
from kafkacore.replication import isr_manager
from kafkacore.simulation.checkers import leaders, metadata, records, replication
from kafkacore.simulation.checkers.violation import Checker
from kafkacore.simulation.plant import Patch, PlantedBug, Wrong, one

_LOOK_S: Final = 0.05
NODES: Final = "3c3b"


# --- the controller ---


def _elects_anybody(right: Wrong) -> Wrong:
    def rules_of(self: Any, *of: Any) -> Any:
        return right(self, *of)[0], True

    return rules_of


def _takes_any_life(right: Wrong) -> Wrong:
    def is_eligible(self: Any, member: Any) -> Any:
        return right(self, member._replace(broker_epoch=-1))

    return is_eligible


def _removes_at_once(right: Wrong) -> Wrong:
    def complete(self: Any) -> None:
        kept = [each for each in self.replicas if each not in self.removing]
        if self.removing and kept and not set(kept) & set(self.isr):
            self.isr, self.replicas, self.removing, self.adding = kept[:1], kept, [], []
        else:
            right(self)

    return complete


# --- leaders ---


def _wants_every_follower(right: Wrong) -> Wrong:
    def wanted(self: Any, led: Any, was: Any) -> Any:
        mine = isr_manager.Member(self.node_id, self.broker_epoch())
        others = [isr_manager.Member(each.broker_id, each.broker_epoch) for each in led.followers()]
        return [mine, *others] if {each.broker_id for each in others} - set(was.isr) else right(self, led, was)

    return wanted


def _shrinks_unasked(right: Wrong) -> Wrong:
    def propose(self: Any, key: Any) -> None:
        right(self, key)
        made = self._unsent.get(key)
        if made is not None and set(made.ids) < set(made.was.isr):
            made.led.commit_isr(made.ids, made.was.leader_epoch, made.was.partition_epoch)

    return propose


def _one_is_enough(right: Wrong) -> Wrong:
    def add(self: Any, row: int, handle: Any, min_isr: int) -> None:
        right(self, row, handle, 1)  # `row` is one partition, or a run of partitions

    return add


def _remembers_positions(right: Wrong) -> Wrong:
    def carry_out(self: Any) -> None:
        handles = [handle for batch in self._batches.values() for handle in batch.handles]
        for handle in handles:
            for each in handle.followers():
                if each.end_offset >= 0:
                    _positions.setdefault(handle, {})[each.broker_id] = each.end_offset
        right(self)
        for handle in handles:
            for each in handle.followers():
                end = _positions.get(handle, {}).get(each.broker_id, -1)
                if each.end_offset < 0 <= end <= handle.end_offset:
                    handle.followed(each.broker_id, end)

    _positions: dict[Any, dict[int, int]] = {}
    return carry_out


def _overlooks_the_last_epoch(right: Wrong) -> Wrong:
    def read(self: Any, partition: Any, asked: Any, max_bytes: int, *, min_one: bool) -> Any:
        asked.last_fetched_epoch = -1
        return right(self, partition, asked, max_bytes, min_one=min_one)

    return read


def _keeps_its_start(right: Wrong) -> Wrong:
    def partition(part: Any, committed: bool) -> Any:
        answer = right(part, committed)
        answer.log_start_offset = min(answer.log_start_offset, 0)
        return answer

    return partition


def _waits_for_the_next_leadership(right: Wrong) -> Wrong:
    async def acknowledged(broker: Any, call: Any, parts: Any, timeout_ms: int) -> None:
        deadline_ms = broker.waits.now_ms() + timeout_ms
        await right(broker, call, parts, timeout_ms)
        for part in parts:
            while part.ack and part.answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                if part.partition.role == "leader" and part.partition.high_watermark >= part.ack[1]:
                    part.answer.error_code = ErrorCode.NONE
                elif broker.waits.now_ms() > deadline_ms:
                    break
                else:
                    await asyncio.sleep(_LOOK_S)

    return acknowledged


def _names_what_it_has(right: Wrong) -> Wrong:
    async def find(broker: Any, call: Any, request: Any, topic: str, asked: Any) -> Any:
        answer = await right(broker, call, request, topic, asked)
        if answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE:
            handle = broker.replicas.by_name(topic, asked.partition_index)
            answer = ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, timestamp=-1, offset=handle.high_watermark
            )
        return answer

    return find


# --- followers ---


def _cuts_to_the_high_watermark(right: Wrong) -> Wrong:
    def follow(self: Any, partitions: Any) -> None:
        followed = list(partitions)
        for each in followed:
            if each.partition.end_offset > each.partition.high_watermark:
                each.partition.truncate_to(each.partition.high_watermark)
        right(self, followed)

    return follow


FETCH: Final = "kafkacore.server.handlers.broker.fetch"
MANAGER: Final = "kafkacore.replication.isr_manager:IsrManager"
ROLES: Final = "kafkacore.replication.roles:RoleChanges"


def _bug(
    name: str, breaks: str, owner: str, attribute: str, wrong: Any, found_by: tuple[type[Checker], ...]
) -> PlantedBug:
    return PlantedBug(name, breaks, one(owner, attribute, wrong), found_by, NODES)


REPLICATION_BUGS: Final = (
    _bug(
        "unclean-election", "A replica outside the ISR becomes leader although the topic does not allow that.",
        "kafkacore.controller.quorum.leaders:LeaderChanges", "rules_of", _elects_anybody,
        (replication.CleanElections, replication.CommittedRecordsAgree),
    ),
    _bug(
        "alter-partition-without-broker-epoch",
        "The controller adds a replica to the ISR although it has restarted since its leader last saw it (KIP-903).",
        "kafkacore.controller.quorum.alter_partition:IsrChange", "_is_eligible", _takes_any_life,
        (metadata.StaleReplicasStayOut, replication.CommittedRecordsAgree),
    ),
    _bug(
        "reassignment-drops-the-last-in-sync",
        "A reassignment ends before any of the remaining replicas is in sync.",
        "kafkacore.controller.common.partition_change:_Change", "_complete_reassignment", _removes_at_once,
        (replication.CleanElections, replication.CommittedRecordsAgree),
    ),
    _bug(
        "isr-of-all-replicas", "A leader proposes followers for the ISR although they have not caught up.",
        MANAGER, "_wanted", _wants_every_follower,
        (replication.CommittedRecordsAgree,),
    ),
    _bug(
        "isr-shrinks-without-the-controller", "A leader drops a replica from its ISR before the controller has agreed.",
        MANAGER, "_propose", _shrinks_unasked,
        (replication.CommittedRecordsAgree,),
    ),
    PlantedBug(
        "min-isr-ignored", "The high watermark advances below min.insync.replicas (KIP-966).",
        tuple(Patch(ROLES, name, _one_is_enough) for name in ("add", "add_run")),
        # HighWatermarkNeedsMinIsr does not judge a high watermark that rises together with a change of the ISR. Then
        # only CommittedRecordsAgree finds the bug, if the controller elects a member of the ELR that lacks the record.
        (leaders.HighWatermarkNeedsMinIsr, replication.CommittedRecordsAgree), NODES,
    ),
    _bug(
        "position-of-an-earlier-epoch", "A leader uses its followers' positions from its previous leadership.",
        ROLES, "carry_out", _remembers_positions,
        (leaders.PositionsAreFetched, replication.CommittedRecordsAgree),
    ),
    _bug(
        "diverging-epoch-overlooked", "A leader does not compare the epoch of the follower's last record.",
        f"{FETCH}:Asker", "read", _overlooks_the_last_epoch,
        (replication.CommittedRecordsAgree, replication.ReplicasConverge, records.ProducersWriteInOrder),
    ),
    _bug(
        "log-start-not-propagated", "A leader's answers to Fetch do not contain its log start offset.",
        FETCH, "_partition", _keeps_its_start,
        (replication.ReplicasConverge,),
    ),
    _bug(
        "acknowledgement-outlives-its-leadership",
        "A Produce that waits when its leader is deposed is acknowledged when that broker leads again.",
        "kafkacore.server.handlers.broker.produce", "acknowledged", _waits_for_the_next_leadership,
        (leaders.AcknowledgedByTheirLeader, records.OneRecordForEachOffset, records.AcknowledgedRecordsStay),
    ),
    _bug(
        "latest-before-the-epoch", "A new leader returns a high watermark below the start of its epoch (KIP-207).",
        "kafkacore.server.handlers.broker.list_offsets", "_find", _names_what_it_has,
        (leaders.LatestWaitsForTheEpoch, replication.LatestCoversAcknowledged),
    ),
    _bug(
        "truncation-by-high-watermark", "A follower truncates to its high watermark, not by epochs (KIP-101).",
        "kafkacore.replication.fetchers:Fetchers", "follow", _cuts_to_the_high_watermark,
        (replication.CommittedRecordsAgree, records.ProducersGoOn),
    ),
)  # fmt: skip
