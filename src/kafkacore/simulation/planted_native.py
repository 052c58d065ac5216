"""Bugs in native code that a build with KAFKACORE_PLANTED=1 can plant. Other builds, and all wheels, contain no planted
bugs.

To make such a build, run `KAFKACORE_PLANTED=1 ... setup.py build_ext` in a copy of the tree. `ci/sanitize.sh planted`
runs tests with such a build. A bug is planted for the whole process, so all simulated nodes of a cluster have the bug.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, NamedTuple

from kafkacore._fast.base.debug_checks import PLANTED
from kafkacore.simulation.checkers import leaders, logs, records, replication
from kafkacore.simulation.checkers.progress import NodesGoOn, Progress
from kafkacore.simulation.checkers.violation import Checker

# base/planted.pxd reads this variable.
_VARIABLE: Final = "KAFKACORE_PLANTED_BUG"

ONE_LOG: Final = "3c2b"  # for bugs that concern a single log: with two brokers, each partition has one replica
REPLICAS: Final = "3c3b"


class NativeBug(NamedTuple):
    """A bug in native code: the guarantee that it breaks, the checkers whose invariants it breaks, and a cluster that
    shows it. Random searches do not look for a bug without checkers, because clusters rarely or never meet its case.
    Unit tests find it."""

    guarantee: str
    found_by: tuple[type[Checker], ...]
    nodes: str = REPLICAS


NATIVE_BUGS: Final = MappingProxyType(
    {
        "lost-sync": NativeBug(
            "an acknowledged record survives a power cut if each append is synced",
            (
                leaders.HighWatermarkIsSynced, logs.CommittedStays, replication.CommittedRecordsAgree,
                records.AcknowledgedRecordsStay,
            ),
            ONE_LOG,
        ),
        "unsynced-high-watermark": NativeBug(
            "nobody reads a record that a power cut can take back",
            (leaders.HighWatermarkIsSynced, replication.CommittedRecordsAgree, records.AcknowledgedRecordsStay),
            ONE_LOG,
        ),
        "torn-tail-accepted": NativeBug(
            "recovery keeps no batch whose checksum is wrong",
            (records.RecordsWereSent, records.ReadsAreWhole, NodesGoOn), ONE_LOG,
        ),
        "recovery-point-ahead": NativeBug(
            "a starting node checks every record that no sync has covered",
            (records.RecordsWereSent, records.ReadsAreWhole, NodesGoOn), ONE_LOG,
        ),
        "producer-epoch-ignored": NativeBug(
            "a producer with an older epoch is fenced", (records.ProducersWriteInOrder,),
        ),
        "sequence-gap-accepted": NativeBug(
            "the batches of an idempotent producer follow each other without a gap", (records.ProducersWriteInOrder,),
        ),
        "high-watermark-below-min-isr": NativeBug(
            "nobody reads a record that fewer than min.insync.replicas have (KIP-966)",
            (leaders.HighWatermarkNeedsMinIsr,),
        ),
        "joining-replica-not-awaited": NativeBug(
            "a caught-up replica outside the ISR can join it", (leaders.JoiningReplicasAreAwaited,),
        ),
        "followers-forgotten": NativeBug(
            "a follower's position survives a change of the ISR", (leaders.PositionsStay,),
        ),
        "acknowledgement-outlives-leadership": NativeBug(
            "a record is acknowledged only in the leadership that appended it",
            (leaders.AcknowledgedByTheirLeader, records.OneRecordForEachOffset, records.AcknowledgedRecordsStay),
        ),
        "acknowledged-across-truncation": NativeBug(
            "no truncated record is acknowledged",
            (leaders.AcknowledgedByTheirLeader, records.OneRecordForEachOffset, records.AcknowledgedRecordsStay),
        ),
        "unfenced-follower": NativeBug(
            "a follower accepts no records of another leader epoch", (replication.CommittedRecordsAgree,),
        ),
        "end-past-the-leader-kept": NativeBug("a follower removes the records past its leader's end", ()),
        "log-not-begun-anew": NativeBug(
            "a follower whose log ends below its leader's log start begins anew there",
            (Progress, replication.ReplicasConverge),
        ),
        "epochs-kept-when-begun-anew": NativeBug(
            "a log that begins anew has no leader epochs of its old records", (),
        ),
        "producers-kept-when-begun-anew": NativeBug(
            "a log that begins anew has no producers of its old records",
            (records.OneRecordForEachOffset, records.ProducersGoOn, records.ProducersWriteInOrder),
        ),
        "large-batch-withheld": NativeBug("a batch arrives even if it is larger than replica.fetch.max.bytes", ()),
        "newer-epoch-appended": NativeBug("a follower accepts no batch with an epoch above its leader's", ()),
        "producers-behind-the-log": NativeBug(
            "a follower's producers follow the batches that it appends",
            (records.NoRecordTwice, records.ProducersGoOn, records.ProducersWriteInOrder),
        ),
        "producers-past-a-truncation": NativeBug("no truncated batch is left in the state of its producer", ()),
    }
)  # fmt: skip


@contextmanager
def planted_natively(name: str) -> Iterator[None]:
    """Plants the bug for the duration of a `with` block. Raises ValueError for an unknown bug, and RuntimeError in a
    build without planted bugs."""
    if name not in NATIVE_BUGS:
        raise ValueError(f"{name!r} is not a native bug; the native bugs are {', '.join(NATIVE_BUGS)}")
    if not PLANTED:
        raise RuntimeError("this build contains no planted bugs: build a copy of the tree with KAFKACORE_PLANTED=1")
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
