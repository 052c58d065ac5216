"""The counters of a coordinator: partitions in commits, deletions and expiries, and completed rebalances."""

import pytest

from group_log import SETTINGS, Client, GroupLog
from kafkacore.coordinator.group import expiry

DAY_MS = 86_400_000


def counts(log: GroupLog) -> tuple[int, int, int, int]:
    it = log.counts
    return it.offset_commits, it.deleted_offsets, it.expired_offsets, it.completed_rebalances


def test_rebalance_is_counted_when_the_assignment_is_stored() -> None:
    log = GroupLog()
    log.join("j", client=Client(api_version=3))
    log.wait(3_000)
    assert counts(log) == (0, 0, 0, 0)
    log.sync("s", log.answers["j"].member_id, 1, {})
    assert counts(log) == (0, 0, 0, 1)


def test_offsets_are_counted_by_partition() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5, ("t", 1): 6, ("u", 0): 7})
    assert counts(log) == (3, 0, 0, 0)
    log.delete_offsets("d", {"t": [1, 9]})
    assert counts(log) == (3, 1, 0, 0)
    log.wait(SETTINGS.offsets_retention_ms + DAY_MS)
    assert counts(log) == (3, 1, 2, 0)
    log.commit_offsets("refused", {("t", 0): 5}, member="nobody", generation=7)
    assert counts(log) == (3, 1, 2, 0)


def test_offsets_that_expire_in_parts_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TICK", 2)
    log = GroupLog()
    log.commit_offsets("c", {("t", index): 5 for index in range(7)})
    log.wait(SETTINGS.offsets_retention_ms + DAY_MS)
    assert log.offsets() == {}
    assert counts(log) == (7, 0, 7, 0)
