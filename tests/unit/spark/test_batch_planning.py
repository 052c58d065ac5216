"""The planning of a batch read on Spark's driver turns topics, bounds and filters into offset ranges."""

import contextlib
import re

import pytest

pytest.importorskip("pyspark", "4.0", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

from fake_cluster import FakeCluster, bounds
from kafkacore.client import Range, TopicMissing
from kafkacore.spark import batch
from kafkacore.spark.batch import BatchReader, FilteringReader, narrow, understood
from kafkacore.spark.columns import RECORD, chosen_columns
from kafkacore.spark.errors import DataLossError, OptionError, SchemaError
from kafkacore.spark.options import source_options


@pytest.fixture
def cluster(monkeypatch):
    fake = FakeCluster(
        {("t", 0): (0, 100), ("t", 1): (10, 60), ("other", 0): (0, 5), ("__consumer_offsets", 0): (0, 9)}
    )
    monkeypatch.setattr(batch, "client", lambda options: contextlib.nullcontext(fake))
    return fake


def planned(*, reader=BatchReader, schema=RECORD, **options):
    given = {"kafka.bootstrap.servers": "fake:1", **options}
    return reader(source_options(given, streaming=False), schema)


def ranges(**options):
    return bounds(planned(**options).partitions())


WHOLE = [("t", 0, 0, 100), ("t", 1, 10, 60)]


def test_a_topic_is_read_whole_by_default(cluster):
    assert ranges(subscribe="t") == WHOLE


def test_a_pattern_matches_whole_names_and_no_internal_topic(cluster):
    assert ranges(subscribePattern=".*") == [("other", 0, 0, 5), *WHOLE]
    assert ranges(subscribePattern="othe") == []


def test_assign_reads_the_named_partitions(cluster):
    assert ranges(assign='{"t":[1]}') == WHOLE[1:]
    with pytest.raises(OptionError, match="assign names t-7"):
        ranges(assign='{"t":[7]}')


def test_a_missing_topic_is_an_error_that_names_it(cluster):
    with pytest.raises(TopicMissing, match="nowhere"):
        ranges(subscribe="t,nowhere")


def test_json_offsets_bound_each_partition(cluster):
    found = ranges(subscribe="t", startingOffsets='{"t":{"0":7,"1":-2}}', endingOffsets='{"t":{"0":-1,"1":20}}')
    assert found == [("t", 0, 7, 100), ("t", 1, 10, 20)]


@pytest.mark.parametrize("offsets", ['{"t":{"0":7}}', '{"t":{"0":7,"1":8,"2":9}}', '{"other":{"0":0}}'])
def test_json_offsets_must_name_every_partition_and_no_other(cluster, offsets):
    with pytest.raises(OptionError, match=r"startingOffsets must name exactly the partitions of the query.*t-0, t-1"):
        ranges(subscribe="t", startingOffsets=offsets)


def test_timestamp_becomes_the_first_offset_at_or_after_it(cluster):
    assert ranges(subscribe="t", startingTimestamp="19500", endingTimestamp="30000") == [
        ("t", 0, 20, 30),
        ("t", 1, 20, 30),
    ]
    by_partition = '{"t":{"0":1000,"1":50000}}'
    assert ranges(subscribe="t", startingOffsetsByTimestamp=by_partition) == [("t", 0, 1, 100), ("t", 1, 50, 60)]


def test_a_start_after_every_record_is_an_error_unless_the_strategy_says_latest(cluster):
    with pytest.raises(OptionError, match="no record of t-1 has the timestamp 70000"):
        ranges(subscribe="t", startingTimestamp="70000")
    found = ranges(subscribe="t", startingTimestamp="70000", startingOffsetsByTimestampStrategy="latest")
    assert found == [("t", 0, 70, 100)]


def test_an_end_after_every_record_is_the_end_of_the_log(cluster):
    assert ranges(subscribe="t", endingTimestamp="70000") == [("t", 0, 0, 70), ("t", 1, 10, 60)]


def test_a_start_behind_its_end_is_data_loss(cluster, capsys):
    options = {"subscribe": "t", "startingOffsets": '{"t":{"0":50,"1":10}}', "endingOffsets": '{"t":{"0":40,"1":20}}'}
    with pytest.raises(DataLossError, match=re.escape("t-0 would be read from offset 50 to 40")):
        ranges(**options)
    assert ranges(**options, failOnDataLoss="false") == [("t", 1, 10, 20)]
    assert "offset 50 to 40" in capsys.readouterr().err


def test_tasks_are_as_many_as_options_ask_for(cluster):
    assert len(planned(subscribe="t", minPartitions="6").partitions()) == 6
    assert len(planned(subscribe="t", maxRecordsPerPartition="25").partitions()) == 6


def test_a_schema_may_choose_columns_and_nothing_else():
    chosen = chosen_columns(RECORD, ["offset", "KEY"], include_headers=False)
    assert chosen.names == ["offset", "key"]
    planned(subscribe="t", schema=chosen)
    wrong = type(RECORD)().add("offset", "string")
    with pytest.raises(SchemaError, match="column offset is bigint, and the schema asks for string"):
        planned(subscribe="t", schema=wrong)
    with pytest.raises(SchemaError, match="no column 'size'"):
        planned(subscribe="t", schema=type(RECORD)().add("size", "long"))
    with pytest.raises(SchemaError, match="names a column twice"):
        planned(subscribe="t", schema=type(RECORD)().add("offset", "long").add("offset", "long"))


@pytest.mark.parametrize("columns", [["size"], ["key", "Key"]])
def test_the_option_columns_is_refused_when_it_is_wrong(columns):
    with pytest.raises(OptionError, match=r"option columns must name columns of .*, each once"):
        chosen_columns(RECORD, columns, include_headers=True)


ONE = Range("t", 3, 100, 200)


@pytest.mark.parametrize(
    ("name", "comparison", "value", "kept"),
    [
        ("topic", "EqualTo", "t", (100, 200)),
        ("topic", "EqualTo", "u", None),
        ("topic", "In", {"t", "u"}, (100, 200)),
        ("partition", "In", {1, 2}, None),
        ("partition", "IsNotNull", None, (100, 200)),
        ("offset", "EqualTo", 150, (150, 151)),
        ("offset", "GreaterThan", 150, (151, 200)),
        ("offset", "GreaterThanOrEqual", 150, (150, 200)),
        ("offset", "LessThan", 150, (100, 150)),
        ("offset", "LessThanOrEqual", 150, (100, 151)),
        ("offset", "GreaterThan", 199, None),
        ("offset", "LessThan", 100, None),
        ("offset", "EqualTo", 300, None),
    ],
)
def test_a_comparison_narrows_a_range(name, comparison, value, kept):
    left = narrow(ONE, name, comparison, value)
    assert (left and (left.start, left.end)) == kept


def test_filters_choose_what_is_read_and_spark_keeps_the_others(cluster):
    filters = pytest.importorskip("pyspark.sql.datasource")
    if not hasattr(filters, "EqualTo"):
        pytest.skip("PySpark 4.0 has no filters for Python sources")
    reader = planned(reader=FilteringReader, subscribe="t", pushFilters="true")
    key = filters.EqualTo(("key",), b"x")
    deep = filters.EqualTo(("headers", "offset"), 5)
    left = list(reader.pushFilters([filters.EqualTo(("partition",), 1), filters.LessThan(("offset",), 30), key, deep]))
    assert left == [key, deep]
    assert bounds(reader.partitions()) == [("t", 1, 10, 30)]
    assert understood(filters.In(("offset",), (1, 2))) is None
