"""The same read with Spark's own connector and with our format. Both must return the same rows, from our node and from
Apache Kafka."""

import time

import pytest

from processes import wait_until
from topic_filling import CODECS


def rows(frame):
    """Returns the rows in the order of partitions and offsets. This order does not depend on how Spark splits the
    read."""
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[2], row[3], row[4]))


@pytest.fixture
def same(read, connector):
    """Asserts that both formats return the same rows for the same options. Returns the rows."""

    def compare(topic=None, *, includeHeaders="true", **options):  # noqa: N803
        ours = read(topic, includeHeaders=includeHeaders, **options)
        theirs = read(topic, format=connector, includeHeaders=includeHeaders, **options)
        assert ours.schema == theirs.schema
        found, expected = rows(ours), rows(theirs)
        assert found == expected
        return found

    return compare


@pytest.mark.parametrize("codec", CODECS)
def test_nulls_headers_and_timestamps_are_the_same_for_each_codec(same, topics, codec):
    topic = topics.fill(topics.create(3), 120, partitions=3, codec=codec, headers=True)
    found = same(topic)
    assert len(found) == 360
    assert (
        {row[0] is None for row in found}
        == {row[1] is None for row in found}
        == {row[7] is None for row in found}
        == {True, False}
    )


def test_the_schema_is_the_same_without_headers(same, topics):
    same(topics.fill(topics.create(), 5), includeHeaders="false")


def test_an_empty_topic_gives_no_row(same, topics):
    assert same(topics.create(4)) == []


def test_log_append_time_is_the_same(same, topics):
    topic = topics.create(1, {"message.timestamp.type": "LogAppendTime"})
    assert {row[6] for row in same(topics.fill(topic, 30))} == {1}


def test_gaps_of_a_compacted_topic_are_the_same(same, read, topics):
    compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    topic = topics.create(1, compacted)
    rounds = 4
    # Segments roll by the timestamps of the records. So each step gets its own segment, however fast the test runs.
    start = int(time.time() * 1000) - 10_000_000
    for number in range(rounds):
        topics.fill(topic, 1, first=98 + number, start_ms=start + number * 1_000_000, null_keys=False)
        topics.fill(topic, 50, start_ms=start + number * 1_000_000 + 500_000, null_keys=False)
    topics.fill(topic, 1, first=98 + rounds, start_ms=start + rounds * 1_000_000, null_keys=False)
    # The cleaner must finish before the first read. Otherwise it could change the log between the reads of the two
    # formats.
    left = 50 + rounds + 1
    wait_until(lambda: len(read(topic).collect()) == left, timeout_s=60, what="compaction")
    offsets = [row[4] for row in same(topic)]
    assert len(offsets) == left
    assert offsets == [0, 51, 102, *range(153, 205)]


def test_a_log_whose_beginning_was_deleted_is_the_same(same, topics):
    topic = topics.fill(topics.create(1), 100)
    topics.delete_records(topic, 0, 40)
    assert [row[4] for row in same(topic)] == list(range(40, 100))


def test_bounds_by_offset_give_the_same_rows(same, topics):
    topic = topics.fill(topics.create(2), 60, partitions=2)
    start, end = f'{{"{topic}":{{"0":10,"1":-2}}}}', f'{{"{topic}":{{"0":-1,"1":25}}}}'
    assert len(same(topic, startingOffsets=start, endingOffsets=end)) == 75


def test_bounds_by_time_give_the_same_rows(same, topics):
    topic = topics.fill(topics.create(2), 60, partitions=2)
    start, end = 1_700_000_010_000, 1_700_000_040_000
    assert len(same(topic, startingTimestamp=str(start), endingTimestamp=str(end))) == 60
    by_partition = f'{{"{topic}":{{"0":{start},"1":{end}}}}}'
    assert len(same(topic, startingOffsetsByTimestamp=by_partition)) == 70
    found = same(topic, startingTimestamp=str(start * 2), startingOffsetsByTimestampStrategy="latest")
    assert found == []


def test_patterns_and_assignments_choose_the_same_partitions(same, topics):
    one, two = (topics.fill(topics.create(2), 10, partitions=2) for _ in range(2))
    pattern = topics.prefix.replace(".", r"\.") + r"\.[0-9]"
    assert {row[2] for row in same(subscribePattern=pattern)} == {one, two}
    found = same(assign=f'{{"{one}":[1],"{two}":[0]}}')
    assert {(row[2], row[3]) for row in found} == {(one, 1), (two, 0)}


@pytest.mark.parametrize("least", [2, 7, 20])
def test_min_partitions_gives_the_same_rows_and_as_many_tasks(same, read, topics, connector, least):
    topic = topics.create(3)
    for partition, count in enumerate((10, 100, 300)):
        producer = topics.producer()
        for number in range(count):
            producer.produce(topic, value=str(number).encode(), partition=partition)
        producer.flush()
    assert len(same(topic, minPartitions=str(least))) == 410
    ours = read(topic, minPartitions=str(least)).rdd.getNumPartitions()
    assert ours == read(topic, format=connector, minPartitions=str(least)).rdd.getNumPartitions()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions_give_the_same_rows(spark, connector, apache, topic_name, isolation):
    from topic_filling import Topics

    topics = Topics(apache.bootstrap, topic_name)
    topic = topics.create(2)
    producer = topics.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        for partition in (0, 1):
            for each in range(20):
                producer.produce(topic, value=f"{number}-{each}".encode(), partition=partition)
        if number % 3 == 1:
            producer.flush()
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    producer.begin_transaction()  # this transaction stays open, so read_committed ends before it
    producer.produce(topic, value=b"open", partition=0)
    producer.flush()
    found = {
        name: rows(
            spark.read.format(name)
            .options(
                **{"kafka.bootstrap.servers": apache.bootstrap, "subscribe": topic, "kafka.isolation.level": isolation}
            )
            .load()
        )
        for name in ("kafkacore", connector)
    }
    producer.abort_transaction(30)
    assert found["kafkacore"] == found[connector]
    assert len(found["kafkacore"]) == (8 * 40 if isolation == "read_committed" else 12 * 40 + 1)
