"""Options of the data source: the connector's defaults, errors that name the wrong option, and the treatment of each
key of Kafka's client."""

import re
import subprocess

import pytest

from brokers import classpath, need_jars
from kafkacore.client.options import kind_of
from kafkacore.spark.client_keys import READING, REFUSED, WRITING, treatment
from kafkacore.spark.errors import OptionError
from kafkacore.spark.options import Bound, sink_options, source_options

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"}


def batch(**options):
    return source_options({**BASE, **options}, streaming=False)


def stream(**options):
    return source_options({**BASE, **options}, streaming=True)


def sink(*, streaming=False, **options):
    return sink_options({"kafka.bootstrap.servers": "localhost:9092", **options}, streaming=streaming)


def test_defaults_equal_the_defaults_in_the_connector():
    read = batch()
    assert (read.start.kind, read.end.kind) == ("earliest", "latest")
    assert stream().start.kind == "latest"
    assert read.fail_on_data_loss
    assert not read.include_headers
    assert (read.min_partitions, read.max_records_per_partition, read.max_offsets_per_trigger) == (None, None, None)
    assert (read.offset_retries, read.offset_retry_interval_ms, read.poll_timeout_ms) == (3, 10, 120_000)
    assert read.max_trigger_delay_ms == 900_000
    assert read.topics == ("a",)


def test_small_ranges_share_tasks_in_streams_when_no_option_sets_the_tasks():
    assert batch().min_records_per_partition == 1
    assert stream().min_records_per_partition == 10_000
    assert stream(minPartitions="2").min_records_per_partition == 1
    assert stream(maxRecordsPerPartition="2").min_records_per_partition == 1
    assert batch(minRecordsPerPartition="500").min_records_per_partition == 500
    for other in ("minPartitions", "maxRecordsPerPartition"):
        with pytest.raises(OptionError, match=f"minRecordsPerPartition joins what {other} splits"):
            stream(minRecordsPerPartition="5", **{other: "9"})


def test_names_are_case_insensitive():
    read = source_options(
        {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "a, b,,a", "includeheaders": "TRUE"}, streaming=False
    )
    assert read.topics == ("a", "b")
    assert read.include_headers
    assert read.kafka == {"bootstrap.servers": "h:1"}


def test_start_follows_the_order_of_the_three_options():
    by_offset = {"startingOffsets": '{"a":{"0":1}}'}
    by_time = by_offset | {"startingOffsetsByTimestamp": '{"a":{"0":2}}'}
    both = by_time | {"startingTimestamp": "3"}
    assert batch(**by_offset).start == Bound("offsets", {("a", 0): 1}, option="startingOffsets")
    assert batch(**by_time).start == Bound("timestamps", {("a", 0): 2}, option="startingOffsetsByTimestamp")
    assert batch(**both).start == Bound("timestamp", timestamp_ms=3, option="startingTimestamp")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("15m", 900_000), ("30s", 30_000), ("500ms", 500), ("2 hours", 7_200_000), ("1d", 86_400_000), ("7", 7)],
)
def test_max_trigger_delay_reads_times_as_spark_writes_them(text, milliseconds):
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribePattern": "b.*"}, "exactly one of the options subscribe, subscribePattern, assign"),
        ({"subscribe": " , "}, "subscribe must name topics"),
        ({"subscribe": "a/b"}, "no topic name"),
        ({"startingOffsets": "latest"}, "startingOffsets of a batch read must be earliest or JSON"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets must not be latest (-1) for a-0"),
        ({"startingOffsets": "first"}, "startingOffsets must be earliest, latest or JSON"),
        ({"endingOffsets": "earliest"}, "endingOffsets must be latest or JSON"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets must not be earliest (-2) for a-0"),
        ({"startingTimestamp": "-1"}, "startingTimestamp must be a whole number from 0"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "startingOffsetsByTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "Strategy must be error or latest"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss must be true or false"),
        ({"minPartitions": "0"}, "minPartitions must be a whole number from 1"),
        ({"minPartitions": "many"}, "minPartitions must be"),
        ({"maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition must be"),
        ({"fetchOffset.numRetries": "x"}, "fetchOffset.numRetries must be"),
        ({"kafkaConsumer.pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs must be"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset is refused"),
        ({"kafka.key.deserializer": "X"}, "kafka.key.deserializer is refused"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit is refused"),
        ({"kafka.sasl.kerberos.service.name": "x"}, "kafka.sasl.kerberos.service.name is refused"),
    ],
)  # fmt: skip
def test_error_names_the_option_when_a_batch_read_has_a_wrong_one(options, complaint):
    with pytest.raises(OptionError, match=re.escape(complaint)):
        batch(**options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batch reads"),
        ({"endingTimestamp": "5"}, "endingTimestamp is for batch reads"),
        ({"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp is for batch reads"),
        ({"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger (6) must not exceed"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time"),
    ],
)
def test_error_names_the_option_when_a_stream_has_a_wrong_one(options, complaint):
    with pytest.raises(OptionError, match=re.escape(complaint)):
        stream(**options)


@pytest.mark.parametrize("pattern", ["", "(", "*"])
def test_invalid_pattern_is_refused(pattern):
    with pytest.raises(OptionError, match="subscribePattern"):
        source_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": pattern}, streaming=False)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topic": "a b"}, "no topic name"),
        ({"exactlyOnce": "true"}, "exactlyOnce is for streams"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id is refused"),
        ({"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes is refused"),
        ({"kafka.partitioner.class": "x"}, "kafka.partitioner.class is refused"),
    ],
)
def test_error_names_the_option_when_a_sink_has_a_wrong_one(options, complaint):
    with pytest.raises(OptionError, match=re.escape(complaint)):
        sink(**options)


def test_texts_of_options_show_no_password():
    pytest.importorskip("pyspark", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")
    from kafkacore.spark.sink import RowWriting
    from kafkacore.spark.tasks import RangeReading

    secret = {"kafka.bootstrap.servers": "h:1", "kafka.ssl.key.password": "hidden"}
    read = source_options({**secret, "subscribe": "t"}, streaming=False)
    written = sink_options(secret, streaming=False)
    shown = [read, RangeReading(read.kafka, None, True), written, RowWriting(written, ())]
    assert "hidden" not in repr(shown) + str(shown)


def test_exactly_once_needs_a_place_for_staged_batches_and_full_acknowledgement():
    with pytest.raises(OptionError, match="stagingLocation"):
        sink(streaming=True, exactlyOnce="true")
    with pytest.raises(OptionError, match=re.escape("kafka.acks must be all")):
        sink(streaming=True, exactlyOnce="true", stagingLocation="/x", **{"kafka.acks": "1"})
    for location in ("file:/x", "hdfs://host/x", "x"):
        with pytest.raises(OptionError, match=f"stagingLocation must be the absolute path .* but it is '{location}'"):
            sink(streaming=True, exactlyOnce="true", stagingLocation=location)


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"startingOfsets": "earliest"}, "startingOfsets is unknown and has no effect; did you mean startingOffsets?"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streams"),
        ({"groupIdPrefix": "x"}, "groupIdPrefix has no effect"),
        ({"kafka.group.id": "x"}, "kafka.group.id is ignored"),
        ({"kafka.acks": "1"}, "kafka.acks is ignored: it is a key of a producer"),
        ({"kafka.no.such.key": "1"}, "kafka.no.such.key is ignored: Kafka's clients have no such key"),
    ],
)
def test_an_option_without_effect_is_a_warning(options, warning):
    with pytest.warns(RuntimeWarning, match=re.escape(warning)):
        batch(**options)


def test_every_key_of_apache_kafkas_clients_has_a_treatment(tmp_path):
    need_jars("4.3.1")
    program = tmp_path / "Keys.java"
    program.write_text(
        "public class Keys { public static void main(String[] a) {"
        " org.apache.kafka.clients.consumer.ConsumerConfig.configNames().forEach(System.out::println);"
        " org.apache.kafka.clients.producer.ProducerConfig.configNames().forEach(System.out::println); } }"
    )
    command = ["java", "-Xmx128m", "-cp", classpath("4.3.1"), str(program)]
    keys = set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split())
    assert len(keys) > 100
    assert {key for key in keys - REFUSED.keys() if kind_of(key) == "unknown"} <= {
        # These keys are newer than the client's table. None of them changes which records are read or written.
        "config.providers", "internal.throw.on.fetch.stable.offset.unsupported", "share.acknowledgement.mode",
        "share.acquire.mode",
    }  # fmt: skip


def test_a_key_of_the_other_side_is_ignored():
    assert READING.isdisjoint(WRITING)
    assert all(kind_of(key) == "honoured" for key in READING | WRITING)
    assert treatment("isolation.level", writes=False) == treatment("acks", writes=True) == ("honoured", "")
    assert treatment("isolation.level", writes=True)[0] == treatment("acks", writes=False)[0] == "ignored"


def test_no_option_of_protection_is_ignored():
    for key in ("ssl.truststore.location", "sasl.mechanism", "sasl.kerberos.service.name", "security.protocol"):
        assert treatment(key, writes=False)[0] == treatment(key, writes=True)[0] != "ignored"
