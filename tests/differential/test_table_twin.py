"""The table of partitions compared with a dict, after random series of changes. A change makes a new table, and must
not alter the older ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log import partition_table as table
from kafkacore._fast.log.partition_table import Table

NAMES = [f"topic-{number}" for number in range(12)]
IDS = [Uuid(number.to_bytes(16, "big")) for number in range(1, 13)]
CHANGES = st.tuples(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(IDS), st.integers(0, 3)), max_size=6),
    st.lists(st.sampled_from(IDS), max_size=3),
)


def changed(twin, topics, gone):
    """Returns the id and the number of partitions of each topic, by name. A new topic replaces the topic with the same
    id or the same name."""
    made = {name: each for name, each in twin.items() if each[0] not in gone}
    for name, topic_id, count in topics:
        made = {other: each for other, each in made.items() if other != name and each[0] != topic_id}
        made[name] = (topic_id, count)
    return made


def contents(made):
    return sorted((name, str(topic_id), count) for name, topic_id, count in made.topics())


def told(twin):
    return sorted((name, str(topic_id), count) for name, (topic_id, count) in twin.items())


@settings(max_examples=200)
@given(st.lists(CHANGES, max_size=8))
def test_table_agrees_with_a_dict_and_older_tables_never_change(changes):
    history = [(Table(), {})]
    for topics, gone in changes:
        made, twin = history[-1]
        listed = [(name, topic_id, [None] * count) for name, topic_id, count in topics]
        history.append((made.changed(listed, gone), changed(twin, topics, gone)))
    for made, twin in history:
        assert contents(made) == told(twin)
        assert len(made) == len(twin)


def test_thousands_of_topics_come_and_go_without_a_leak():
    before = table.live_count(), table.live_topics()
    ids = [Uuid.random() for _ in range(5000)]
    made = Table().changed([(f"t{number}", each, [None]) for number, each in enumerate(ids)])
    one_by_one = Table()
    for number, each in enumerate(ids):
        one_by_one = one_by_one.changed([(f"t{number}", each, [None])])
    assert contents(made) == contents(one_by_one) and len(made) == 5000
    few = made.changed([("t0", Uuid.random(), [])], ids[10:])
    assert sorted(name for name, _, _ in few.topics()) == sorted(f"t{number}" for number in range(10))
    assert contents(made) == contents(one_by_one), "a published table must not change"
    for number in range(5000):
        one_by_one = one_by_one.changed([], [ids[number]])
    assert len(one_by_one) == 0 and one_by_one.topics() == []
    del made, few, one_by_one
    assert (table.live_count(), table.live_topics()) == before
