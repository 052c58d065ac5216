"""Batch reads and batch writes with the format `kafkacore`: the rows, the tasks, and each error message that a user can
get."""

import re

import pytest

from topic_filling import CODECS

NOWHERE = "127.0.0.1:9"  # writes to this address fail before anything connects


def complaint(frame_or_work):
    """Returns the error message of a query that fails."""
    with pytest.raises(Exception) as failed:
        frame_or_work() if callable(frame_or_work) else frame_or_work.collect()
    return str(failed.value)


def test_the_format_is_found_without_registration(spark, read, topics):
    topic = topics.fill(topics.create(), 3)
    assert read(topic).count() == 3


def test_chosen_columns_are_all_that_is_read(read, topics):
    topic = topics.fill(topics.create(), 20)
    by_option = read(topic, columns="offset,key")
    assert by_option.columns == ["offset", "key"]
    assert sorted(row.offset for row in by_option.collect()) == list(range(20))


def test_a_schema_chooses_columns(spark, kafka, topics):
    topic = topics.fill(topics.create(), 20)
    reader = spark.read.format("kafkacore").options(**{"kafka.bootstrap.servers": kafka, "subscribe": topic})
    assert sorted(row.offset for row in reader.schema("offset bigint").load().collect()) == list(range(20))
    assert "column offset is bigint" in complaint(reader.schema("offset string").load())


def test_a_limit_abandons_a_read_and_the_next_read_is_whole(read, topics):
    topic = topics.fill(topics.create(2), 20_000, partitions=2)
    assert len(read(topic).limit(3).collect()) == 3
    assert read(topic).count() == 40_000


def test_a_large_record_comes_back(spark, kafka, topics):
    topic = topics.create(1, {"max.message.bytes": "6000000"})
    frame = spark.sql("select repeat('x', 3000000) as value")
    options = {"kafka.bootstrap.servers": kafka, "topic": topic, "kafka.max.request.size": "5000000"}
    frame.write.format("kafkacore").mode("append").options(**options).save()
    read = spark.read.format("kafkacore").options(**{"kafka.bootstrap.servers": kafka, "subscribe": topic}).load()
    assert [len(row.value) for row in read.collect()] == [3_000_000]


@pytest.mark.parametrize("codec", CODECS)
def test_rows_that_are_written_are_read_again(spark, kafka, read, topics, codec):
    topic = topics.create(3)
    frame = spark.range(0, 5000, 1, 4).selectExpr(
        "if(id % 5 = 0, null, cast(id as string)) as key",
        "if(id % 7 = 0, null, repeat(cast(id as string), 9)) as value",
    )
    frame.write.format("kafkacore").mode("append").options(
        **{"kafka.bootstrap.servers": kafka, "topic": topic, "kafka.compression.type": codec}
    ).save()
    found = read(topic).selectExpr("cast(key as string)", "cast(value as string)")
    assert sorted(map(str, found.collect())) == sorted(map(str, frame.collect()))


def test_columns_choose_topic_and_partition_and_carry_headers(spark, kafka, read, topics):
    one, two = topics.create(3), topics.create(3)
    frame = spark.sql(
        f"select * from values ('a', 'x', '{one}', 2, array(named_struct('key', 'h', 'value', X'01'))),"
        f" ('b', 'y', '{two}', 0, null),"
        f" ('c', 'z', '{one}', 1, array(named_struct('key', 'n', 'value', cast(null as binary))))"
        " as rows(key, value, topic, partition, headers)"
    )
    frame.write.format("kafkacore").mode("append").option("kafka.bootstrap.servers", kafka).save()
    rows = read(f"{one},{two}", includeHeaders="true").collect()
    found = {row.value: (row.key, row.topic, row.partition, row.headers) for row in rows}
    assert {value: row[:3] for value, row in found.items()} == {
        b"x": (b"a", one, 2), b"y": (b"b", two, 0), b"z": (b"c", one, 1)
    }  # fmt: skip
    assert [tuple(one) for one in found[b"x"][3]] == [("h", b"\1")]
    assert found[b"y"][3] is None
    assert [tuple(one) for one in found[b"z"][3]] == [("n", None)]


def test_keys_go_to_the_partitions_that_the_connector_chooses(spark, kafka, read, topics, connector):
    frame = spark.range(500).selectExpr("cast(id as string) as key", "'v' as value")
    placed = []
    for name in ("kafkacore", connector):
        topic = topics.create(7)
        frame.write.format(name).mode("append").options(**{"kafka.bootstrap.servers": kafka, "topic": topic}).save()
        # PySpark 4.0 returns a bytearray.
        placed.append({bytes(row.key): row.partition for row in read(topic).collect()})
    assert placed[0] == placed[1]
    assert len(placed[0]) == 500


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select 1 as value", "column value must be string or binary, but it is int"),
        ("select 'k' as key", "the column value is missing; the columns are key"),
        ("select 'v' as value, 5 as topic", "column topic must be string"),
        ("select 'v' as value, 5L as partition", "column partition must be int, but it is bigint"),
        ("select 'v' as value, array('x') as headers", "column headers must be array<struct"),
    ],
)
def test_a_sink_names_the_column_that_does_not_fit(spark, query, said):
    writer = spark.sql(query).write.format("kafkacore").mode("append")
    options = {"kafka.bootstrap.servers": NOWHERE, "topic": "t"}
    assert said in complaint(lambda: writer.options(**options).save())


def test_a_sink_needs_a_topic_for_every_row(spark):
    options = {"kafka.bootstrap.servers": NOWHERE}
    writer = spark.sql("select 'v' as value").write.format("kafkacore").mode("append").options(**options)
    assert "the option topic is missing" in complaint(writer.save)
    nothing = spark.sql("select 'v' as value, cast(null as string) as topic")
    writer = nothing.write.format("kafkacore").mode("append").options(**options)
    assert "a row has no topic" in complaint(writer.save)


def test_overwriting_a_topic_is_refused(spark):
    writer = spark.sql("select 'v' as value").write.format("kafkacore").mode("overwrite")
    options = {"kafka.bootstrap.servers": NOWHERE, "topic": "t"}
    assert re.search("overwrit|append", complaint(lambda: writer.options(**options).save()))


def test_a_missing_topic_is_named(read):
    assert "no-such-topic" in complaint(lambda: read("no-such-topic").collect())


def test_brokers_out_of_reach_are_named(spark):
    from kafkacore.runtime.ports import free_ports

    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = {"kafka.bootstrap.servers": address, "subscribe": "t", "kafka.default.api.timeout.ms": "1500"}
    frame = spark.read.format("kafkacore").options(**options).load()
    assert address in complaint(frame.collect)


def test_query_error_names_the_option_when_its_value_is_wrong(read):
    assert "option startingOffsets of a batch read must be earliest or JSON" in complaint(
        lambda: read("t", startingOffsets="latest").collect()
    )


def test_offsets_that_retention_deleted_are_data_loss(read, topics):
    topic = topics.fill(topics.create(), 100)
    topics.delete_records(topic, 0, 50)
    start = f'{{"{topic}":{{"0":20}}}}'
    said = complaint(lambda: read(topic, startingOffsets=start).collect())
    assert f"{topic}-0" in said
    assert "20" in said
    assert "failOnDataLoss=false" in said
    found = read(topic, startingOffsets=start, failOnDataLoss="false").collect()
    assert sorted(row.offset for row in found) == list(range(50, 100))


@pytest.fixture
def pushes_filters(spark):
    import pyspark

    if pyspark.__version__ < "4.1":
        pytest.skip("PySpark 4.0 has no filters for Python sources")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


@pytest.mark.usefixtures("pushes_filters")
def test_pushed_filters_choose_what_is_fetched(spark, kafka, topics):
    topic = topics.fill(topics.create(2), 100, partitions=2)
    options = {"kafka.bootstrap.servers": kafka, "subscribe": topic, "pushFilters": "true"}
    frame = spark.read.format("kafkacore").options(**options).load()
    wanted = frame.where("partition = 1 and offset >= 90")
    assert sorted((row.partition, row.offset) for row in wanted.collect()) == [(1, at) for at in range(90, 100)]
    assert wanted.rdd.getNumPartitions() == 1


@pytest.mark.usefixtures("pushes_filters")
def test_pushed_filter_on_timestamps_skips_segments_of_either_kind_of_broker(spark, kafka, topics, request):
    broker = request.getfixturevalue("our_node" if request.node.callspec.params["kafka"] == "kafkacore" else "apache")
    topic = topics.create(1, {"segment.ms": "10000"})
    for number in range(5):  # each begins a segment
        topics.fill(topic, 5, first=10 * number, start_ms=1_700_000_000_000 + 100_000 * number)
    reader = spark.read.format("kafkacore-log").option("path", str(broker.log_dir)).option("topics", topic)
    frame = reader.option("pushFilters", "true").load()
    assert frame.rdd.getNumPartitions() == 5
    wanted = frame.where("timestamp >= timestamp_millis(1700000330000)")
    assert sorted(row.offset for row in wanted.collect()) == list(range(15, 25))
    assert wanted.rdd.getNumPartitions() == 2
