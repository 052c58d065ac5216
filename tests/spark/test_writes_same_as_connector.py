"""The same write with Spark's own connector and with our format. Both must write the same records, and refuse the same
writes. Also tests the keys of Kafka's client that change how records are read and written."""

import pytest

from topic_filling import CODECS

NOWHERE = "127.0.0.1:9"  # writes to this address fail before anything connects
ROWS = (
    "select if(id % 5 = 0, null, cast(id % 50 as string)) as key, if(id % 7 = 0, null, repeat('v', cast(id as int)))"
    " as value, cast(id % 3 as int) as partition, if(id % 4 = 0, array(named_struct('key', 'h', 'value', X'01'),"
    " named_struct('key', 'h', 'value', cast(null as binary))), null) as headers, id as another from range(300)"
)


def content(frame, *columns):
    """Returns the columns of each record, in an order that depends on them alone."""
    return sorted(str([_plain(row[name]) for name in columns]) for row in frame.collect())


def _plain(value):
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.fixture
def write(kafka):
    def run(frame, name, **options):
        given = {"kafka.bootstrap.servers": kafka, **options}
        frame.write.format(name).mode("append").options(**given).save()

    return run


@pytest.fixture
def same(write, read, topics, connector):
    """Writes a frame with both formats, to a new topic each. Asserts that the topics have the same records, and returns
    their rows."""

    def compare(frame, *, partitions=3, columns=("key", "value", "partition", "headers"), **options):
        found = []
        for name in ("kafkacore", connector):
            topic = topics.create(partitions)
            write(frame, name, topic=topic, **options)
            found.append(content(read(topic, includeHeaders="true"), *columns))
        assert found[0] == found[1]
        return found[0]

    return compare


@pytest.mark.parametrize("codec", CODECS)
def test_keys_values_partitions_and_headers_are_the_same_for_each_codec(spark, same, codec):
    found = same(spark.sql(ROWS), **{"kafka.compression.type": codec})
    assert len(found) == 300


@pytest.mark.parametrize("include", ["true", "false"])
def test_headers_are_written_whatever_include_headers_says(spark, same, include):
    frame = spark.sql(ROWS).where("headers is not null")
    assert all("'h'" in row for row in same(frame, includeHeaders=include, columns=("headers",)))


def test_bytes_are_written_as_they_are(spark, same):
    assert same(spark.sql("select X'6bff' as key, X'76ff' as value"), columns=("key", "value")) == [
        r"[b'k\xff', b'v\xff']"
    ]


def test_names_of_columns_are_case_insensitive_only_here(spark, write, read, topics, connector):
    frame, topic = spark.sql("select 'k' as KEY, 'v' as Value"), topics.create()
    write(frame, "kafkacore", topic=topic)
    assert content(read(topic), "key", "value") == ["[b'k', b'v']"]
    with pytest.raises(Exception, match="Required attribute 'value' not found"):
        write(frame, connector, topic=topic)


def test_option_topic_takes_precedence_over_the_column(spark, same):
    frame = spark.sql("select 'v' as value, 'no-such-topic' as topic")
    assert same(frame, columns=("value",)) == ["[b'v']"]


def test_column_topic_chooses_the_topic_of_each_row(spark, write, read, topics, connector):
    for name in ("kafkacore", connector):
        one, two = topics.create(), topics.create()
        write(spark.sql(f"select 'a' as value, '{one}' as topic union all select 'b', '{two}'"), name)
        assert content(read(f"{one},{two}"), "topic", "value") == sorted([f"['{one}', b'a']", f"['{two}', b'b']"])


@pytest.mark.parametrize("query", [
    "select 'k' as key", "select 1 as value", "select 'v' as value, 5 as topic", "select 'v' as value, 5L as partition",
    "select 'v' as value, array('x') as headers", "select 'v' as value, cast(null as string) as topic",
])  # fmt: skip
def test_both_formats_refuse_columns_that_do_not_fit(spark, connector, query):
    topic = {} if "topic" in query else {"topic": "t"}
    for name in ("kafkacore", connector):
        writer = spark.sql(query).write.format(name).mode("append")
        with pytest.raises(Exception, match=r"(?i)value|topic|partition|headers"):
            writer.options(**{"kafka.bootstrap.servers": NOWHERE, **topic}).save()


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_both_formats_refuse_other_modes_than_append(spark, connector, mode):
    for name in ("kafkacore", connector):
        writer = spark.sql("select 'v' as value").write.format(name).mode(mode)
        with pytest.raises(Exception, match=r"(?i)mode|append|overwrit"):
            writer.options(**{"kafka.bootstrap.servers": NOWHERE, "topic": "t"}).save()


# --- keys of Kafka's client ---


def test_rows_are_the_same_when_fetches_are_small(same_read, topics):
    topic = topics.fill(topics.create(2), 400, partitions=2, size=400)
    assert len(same_read(topic, **{
        "kafka.fetch.max.bytes": "2000", "kafka.max.partition.fetch.bytes": "1000", "kafka.fetch.min.bytes": "1",
        "kafka.fetch.max.wait.ms": "5", "kafka.check.crcs": "false", "kafka.client.rack": "a", "kafka.client.id": "me",
    })) == 800  # fmt: skip


@pytest.fixture
def same_read(read, connector):
    def compare(topic, **options):
        found = [content(read(topic, format=name, **options), *("partition", "offset", "key", "value"))
                 for name in ("kafkacore", connector)]  # fmt: skip
        assert found[0] == found[1]
        return found[0]

    return compare


def test_record_larger_than_the_largest_request_is_refused_by_both_formats(spark, write, topics, connector):
    topic = topics.create()
    for name in ("kafkacore", connector):
        with pytest.raises(Exception, match=r"(?i)max\.request\.size|too large"):
            write(
                spark.sql("select repeat('x', 5000) as value"), name, topic=topic, **{"kafka.max.request.size": "2000"}
            )


def test_key_chooses_no_partition_when_the_partitioner_ignores_keys(spark, write, read, topics, connector):
    frame = spark.sql("select 'k' as key, repeat('v', 900) as value from range(0, 400, 1, 1)")
    for ignores, spread in (("false", {1}), ("true", {2, 3, 4})):
        for name in ("kafkacore", connector):
            topic = topics.create(4)
            options = {"kafka.partitioner.ignore.keys": ignores, "kafka.batch.size": "1000"}
            write(frame, name, topic=topic, **options)
            assert len({row.partition for row in read(topic).collect()}) in spread


def test_write_ends_within_its_timeouts_when_no_broker_answers(spark):
    from kafkacore.runtime.ports import free_ports

    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = {
        "kafka.bootstrap.servers": address, "topic": "t", "kafka.default.api.timeout.ms": "1500",
        "kafka.delivery.timeout.ms": "1500", "kafka.request.timeout.ms": "500",
        "kafka.socket.connection.setup.timeout.ms": "500", "kafka.reconnect.backoff.max.ms": "100",
    }  # fmt: skip
    writer = spark.sql("select 'v' as value").write.format("kafkacore").mode("append").options(**options)
    with pytest.raises(Exception, match=address):
        writer.save()
