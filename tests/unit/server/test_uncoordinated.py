"""If a broker becomes the leader of a partition that it cannot coordinate, it logs the partition's name each time."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.server.uncoordinated import Uncoordinated


def image(**leaders: list[int]) -> Any:
    """Returns an image with the given leader of each partition, by topic."""
    rows = [(name, index, leader) for name, each in leaders.items() for index, leader in enumerate(each)]
    made = {
        name: SimpleNamespace(partition_rows=[row for row, (topic, _, _) in enumerate(rows) if topic == name])
        for name in leaders
    }
    return SimpleNamespace(topic=made.get, partition_at=lambda row: SimpleNamespace(leader=rows[row][2]))


def test_partition_is_named_when_this_broker_becomes_its_leader(caplog: pytest.LogCaptureFixture) -> None:
    watched = Uncoordinated(7)
    watched.apply(image(t=[7, 7]))
    watched.apply(image(__transaction_state=[8, 8, 8]))
    assert caplog.messages == []
    watched.apply(image(__transaction_state=[7, 8, 7], __share_group_state=[7]))
    watched.apply(image(__transaction_state=[7, 8, 7], __share_group_state=[7]))
    transactions, shares = caplog.messages
    assert transactions.startswith("this broker leads partitions 0, 2 of __transaction_state, but it cannot coordinate")
    assert "their transactional ids get a final error" in transactions
    assert shares.startswith("this broker leads partitions 0 of __share_group_state")
    assert "their share groups get no records" in shares
    assert (watched.elections, len(watched.led)) == (3, 3)


def test_partition_is_named_again_when_it_was_away(caplog: pytest.LogCaptureFixture) -> None:
    watched = Uncoordinated(7)
    for leader in (7, 8, 7):
        watched.apply(image(__transaction_state=[leader]))
    assert (len(caplog.messages), watched.elections, watched.led) == (2, 2, {("__transaction_state", 0)})


def test_partition_of_groups_is_named_when_it_holds_new_kinds(caplog: pytest.LogCaptureFixture) -> None:
    watched = Uncoordinated(7)
    watched.found_groups(3, {"share": 1, "consumer": 2})
    [told] = caplog.messages
    assert told.startswith("this broker leads partition 3 of __consumer_offsets with 2 consumer and 1 share groups")
    assert watched.elections == 1
