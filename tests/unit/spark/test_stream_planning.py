"""The planning of a stream on Spark's driver: positions, limits, and each way in which a cluster can lose offsets that
a query has not read yet."""

import pytest

pytest.importorskip("pyspark", "4.2", reason="streams need PySpark 4.2: pip install kafkacore[spark], or ci/spark.sh")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from fake_cluster import FakeCluster, bounds
from kafkacore.client import TopicMissing
from kafkacore.spark import stream
from kafkacore.spark.columns import RECORD
from kafkacore.spark.errors import CheckpointError, DataLossError, OptionError
from kafkacore.spark.options import source_options
from kafkacore.spark.positions import TOPIC_IDS, from_json_object
from kafkacore.spark.stream import StreamReader

ALL = ReadAllAvailable()
T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
def cluster(monkeypatch):
    fake = FakeCluster({T0: (0, 100), T1: (10, 60)})
    monkeypatch.setattr(stream, "new_client", lambda options: fake)
    return fake


def reader(**options):
    given = {"kafka.bootstrap.servers": "fake:1", "subscribe": "t", **options}
    given = {name: value for name, value in given.items() if value is not None}
    return StreamReader(source_options(given, streaming=True), RECORD)


def positions(offset):
    return from_json_object(offset)[0]


def first_batch(query):
    start = query.initialOffset()
    return start, query.latestOffset(start, ALL)


def test_a_stream_from_earliest_reads_everything_in_its_first_batch(cluster):
    query = reader(startingOffsets="earliest")
    assert bounds(query.partitions(*first_batch(query))) == [("t", 0, 0, 100), ("t", 1, 10, 60)]


def test_first_batch_is_empty_and_ends_at_the_start_when_a_stream_begins_at_latest(cluster):
    query = reader()
    start = query.initialOffset()
    cluster.grow(5)
    end = query.latestOffset(start, ALL)
    assert positions(end) == {T0: 100, T1: 60}
    assert query.partitions(query.initialOffset(), end) == []
    later = query.latestOffset(end, ALL)
    assert bounds(query.partitions(end, later)) == [("t", 0, 100, 105), ("t", 1, 60, 65)]


def test_a_stream_from_latest_misses_nothing_when_its_driver_dies_before_the_first_commit(cluster):
    dead = reader()
    _, in_checkpoint = first_batch(dead)
    cluster.grow(7)
    # Spark repeats the batch. It asks for the initial offset again, but takes the end from its checkpoint.
    query = reader()
    assert query.partitions(query.initialOffset(), in_checkpoint) == []
    assert bounds(query.partitions(in_checkpoint, query.latestOffset(in_checkpoint, ALL))) == [
        ("t", 0, 100, 107), ("t", 1, 60, 67)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("starting", "planned"),
    [
        ("earliest", [("t", 0, 0, 100), ("t", 1, 10, 60)]),
        ("latest", []),
        ('{"t":{"0":50,"1":-2}}', [("t", 0, 50, 100), ("t", 1, 10, 60)]),
    ],
)
def test_first_batch_is_repeated_when_a_partition_is_new_since_its_driver_died(cluster, starting, planned):
    dead = reader(startingOffsets=starting)
    _, in_checkpoint = first_batch(dead)
    cluster.logs["t", 2] = (0, 4)
    query = reader(startingOffsets=starting)
    assert bounds(query.partitions(query.initialOffset(), in_checkpoint)) == planned
    later = query.latestOffset(in_checkpoint, ALL)
    assert bounds(query.partitions(in_checkpoint, later)) == [("t", 2, 0, 4)]


def test_first_batch_is_repeated_when_a_topic_is_new_since_its_driver_died(cluster):
    options = {"subscribe": None, "subscribePattern": ".", "startingOffsets": "earliest"}
    _, in_checkpoint = first_batch(reader(**options))
    cluster.logs["u", 0] = (0, 4)
    cluster.create("u")
    query = reader(**options)
    assert bounds(query.partitions(query.initialOffset(), in_checkpoint)) == [("t", 0, 0, 100), ("t", 1, 10, 60)]
    later = query.latestOffset(in_checkpoint, ALL)
    assert bounds(query.partitions(in_checkpoint, later)) == [("u", 0, 0, 4)]


@pytest.mark.parametrize("named", ['{"t":{"0":50}}', '{"t":{"0":50,"1":-1,"2":0}}'])
def test_new_query_stops_when_its_start_does_not_name_exactly_its_partitions(cluster, named):
    with pytest.raises(OptionError, match=r"startingOffsets must name exactly .* but the query reads t-0, t-1;"):
        first_batch(reader(startingOffsets=named))


def test_initial_offset_stays_when_spark_asks_twice(cluster):
    query = reader()
    before = query.initialOffset()
    cluster.grow(1)
    assert query.initialOffset() == before


def test_json_with_latest_for_one_partition_makes_the_first_batch_empty(cluster):
    query = reader(startingOffsets='{"t":{"0":50,"1":-1}}')
    start, end = first_batch(query)
    assert positions(start) == positions(end) == {T0: 50, T1: 60}
    assert bounds(query.partitions(end, query.latestOffset(end, ALL))) == [("t", 0, 50, 100)]


def test_available_now_ends_where_the_logs_ended_at_its_start(cluster):
    query = reader(startingOffsets="earliest", maxOffsetsPerTrigger="60")
    query.prepareForTriggerAvailableNow()
    cluster.grow(1000)
    offset, ends = query.initialOffset(), []
    while (following := query.latestOffset(offset, query.getDefaultReadLimit())) != offset:
        offset = following
        ends.append(positions(offset))
    assert ends[-1] == {T0: 100, T1: 60}
    assert [sum(end.values()) - 10 for end in ends] == [60, 120, 150]


def test_available_now_leaves_a_partition_to_the_next_query_when_it_is_created_after_its_start(cluster):
    query = reader(startingOffsets="earliest")
    query.prepareForTriggerAvailableNow()
    cluster.logs["t", 2] = (0, 4)
    assert bounds(query.partitions(*first_batch(query))) == [("t", 0, 0, 100), ("t", 1, 10, 60)]


def test_available_now_is_not_held_up_by_a_minimum(cluster):
    query = reader(startingOffsets="earliest", minOffsetsPerTrigger="1000")
    query.prepareForTriggerAvailableNow()
    start, end = first_batch(query)
    assert start != end
    assert query.latestOffset(end, ReadMinRows(1000)) == end


def test_read_limit_follows_the_options(cluster):
    assert reader().getDefaultReadLimit() == ReadAllAvailable()
    assert reader(maxOffsetsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert reader(minOffsetsPerTrigger="3").getDefaultReadLimit() == ReadMinRows(3)
    assert reader(minOffsetsPerTrigger="3", maxOffsetsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)


def test_read_all_available_beats_the_limit_of_the_options(cluster):
    query = reader(startingOffsets="earliest", maxOffsetsPerTrigger="5")
    assert positions(query.latestOffset(query.initialOffset(), ALL)) == {T0: 100, T1: 60}


def test_a_minimum_holds_a_batch_back_until_enough_offsets_wait(cluster):
    query = reader(startingOffsets="earliest", minOffsetsPerTrigger="20", maxOffsetsPerTrigger="30")
    limit = query.getDefaultReadLimit()
    end = query.latestOffset(query.initialOffset(), limit)
    assert positions(end) == {T0: 20, T1: 20}
    end = query.latestOffset(end, ALL)
    cluster.grow(9)
    assert query.latestOffset(end, limit) == end
    cluster.grow(1)
    assert positions(query.latestOffset(end, limit)) == {T0: 110, T1: 70}


def test_a_minimum_gives_way_when_the_delay_is_over(cluster):
    query = reader(startingOffsets="earliest", minOffsetsPerTrigger="1000000", maxTriggerDelay="0ms")
    end = query.latestOffset(query.initialOffset(), query.getDefaultReadLimit())
    cluster.grow(1)
    assert query.latestOffset(end, query.getDefaultReadLimit()) != end


def test_progress_shows_the_latest_offsets_beside_a_limited_batch(cluster):
    query = reader(startingOffsets="earliest", maxOffsetsPerTrigger="5")
    end = query.latestOffset(query.initialOffset(), query.getDefaultReadLimit())
    assert positions(query.reportLatestOffset()) == {T0: 100, T1: 60}
    assert positions(end) != {T0: 100, T1: 60}


def test_a_new_partition_is_read_from_its_beginning(cluster):
    query = reader(startingOffsets="earliest")
    _, end = first_batch(query)
    cluster.logs["t", 2] = (0, 4)
    later = query.latestOffset(end, ALL)
    assert bounds(query.partitions(end, later)) == [("t", 2, 0, 4)]


def test_a_new_partition_whose_beginning_is_gone_is_data_loss(cluster):
    query = reader(startingOffsets="earliest")
    _, end = first_batch(query)
    cluster.logs["t", 2] = (3, 4)
    with pytest.raises(DataLossError, match="new partition t-2 begins at offset 3"):
        query.partitions(end, query.latestOffset(end, ALL))
    tolerant = reader(startingOffsets="earliest", failOnDataLoss="false")
    assert bounds(tolerant.partitions(end, tolerant.latestOffset(end, ALL))) == [("t", 2, 3, 4)]


def test_a_partition_that_is_gone_is_data_loss(cluster, capsys):
    query = reader(startingOffsets="earliest")
    _, end = first_batch(query)
    del cluster.logs[T1]
    with pytest.raises(DataLossError, match=r"partitions are gone: t-1.*failOnDataLoss=false"):
        query.latestOffset(end, ALL)
    tolerant = reader(startingOffsets="earliest", failOnDataLoss="false")
    assert positions(tolerant.latestOffset(end, ALL)) == {T0: 100}
    assert "partitions are gone: t-1" in capsys.readouterr().err


@pytest.mark.parametrize("strategy", [{"subscribe": "t,u"}, {"assign": '{"t":[0],"u":[0]}', "subscribe": None}])
def test_topic_that_is_gone_is_data_loss_when_the_options_name_it(cluster, strategy, capsys):
    cluster.logs["u", 0] = (0, 5)
    cluster.create("u")
    options = {"startingOffsets": "earliest", **strategy}
    query = reader(**options)
    _, end = first_batch(query)
    del cluster.logs["u", 0]
    with pytest.raises(DataLossError, match="topic u does not exist: it was deleted; set failOnDataLoss=false"):
        query.latestOffset(end, ALL)
    tolerant = reader(**options, failOnDataLoss="false")
    cluster.grow(1, T0)
    later = tolerant.latestOffset(end, ALL)
    assert bounds(tolerant.partitions(end, later)) == [("t", 0, 100, 101)]
    assert tolerant.latestOffset(later, ALL) == later
    assert capsys.readouterr().err.count("topic u does not exist") == 1


@pytest.mark.parametrize(("created_again", "first"), [(False, 5), (True, 0)])
def test_named_topic_is_read_from_its_position_when_it_was_missing_for_a_while(cluster, created_again, first):
    cluster.logs["u", 0] = (0, 5)
    cluster.create("u")
    query = reader(subscribe="u", startingOffsets="earliest", failOnDataLoss="false")
    _, end = first_batch(query)
    del cluster.logs["u", 0]
    assert query.latestOffset(end, ALL) == end
    cluster.logs["u", 0] = (0, 8)
    if created_again:
        cluster.create("u")
    assert bounds(query.partitions(end, query.latestOffset(end, ALL))) == [("u", 0, first, 8)]


def test_planned_batch_goes_on_without_a_new_topic_that_was_deleted_before_it_was_read(cluster):
    query = reader(subscribe=None, subscribePattern=".", startingOffsets="earliest")
    _, end = first_batch(query)
    cluster.logs["u", 0] = (0, 5)
    cluster.create("u")
    cluster.grow(1, T0)
    in_checkpoint = query.latestOffset(end, ALL)
    del cluster.logs["u", 0]
    with pytest.raises(DataLossError, match="topic u does not exist: it was deleted before the query read it"):
        query.partitions(end, in_checkpoint)
    tolerant = reader(subscribe=None, subscribePattern=".", failOnDataLoss="false")
    assert bounds(tolerant.partitions(end, in_checkpoint)) == [("t", 0, 100, 101)]


def test_topic_that_never_existed_is_named(cluster):
    query = reader(subscribe="t,other", startingOffsets="earliest", failOnDataLoss="false")
    with pytest.raises(TopicMissing, match="topic other does not exist"):
        query.initialOffset()


def test_a_topic_created_anew_is_data_loss_that_names_both_ids(cluster):
    query = reader(startingOffsets="earliest")
    _, end = first_batch(query)
    old = str(cluster.ids["t"])
    cluster.create("t")
    # The new topic already has more records than the old one, so the offsets alone do not show the difference.
    cluster.logs.update({T0: (0, 500), T1: (0, 500)})
    with pytest.raises(DataLossError, match=f"its id was {old} and is {cluster.ids['t']} now") as lost:
        query.latestOffset(end, ALL)
    assert "t-0, t-1" in str(lost.value)
    tolerant = reader(startingOffsets="earliest", failOnDataLoss="false")
    later = tolerant.latestOffset(end, ALL)
    assert bounds(tolerant.partitions(end, later)) == [("t", 0, 0, 500), ("t", 1, 0, 500)]


def test_a_log_that_lost_its_end_is_data_loss(cluster):
    query = reader(startingOffsets="earliest", **{"fetchOffset.numRetries": "0"})
    _, end = first_batch(query)
    cluster.logs[T0] = (0, 40)
    later = query.latestOffset(end, ALL)
    with pytest.raises(DataLossError, match="the log of t-0 ended at offset 40, but offset 100 was read before"):
        query.partitions(end, later)
    tolerant = reader(startingOffsets="earliest", failOnDataLoss="false")
    assert tolerant.partitions(end, later) == []


def test_log_that_lost_its_end_is_data_loss_when_a_stream_from_latest_has_read_nothing_yet(cluster):
    query = reader(**{"fetchOffset.numRetries": "0"})
    _, end = first_batch(query)
    assert query.partitions(query.initialOffset(), end) == []
    cluster.logs[T0] = (0, 40)
    later = query.latestOffset(end, ALL)
    with pytest.raises(DataLossError, match="the log of t-0 ended at offset 40, but offset 100 was read before"):
        query.partitions(end, later)


def test_available_now_loses_nothing_when_a_log_grows_between_its_target_and_its_start(cluster):
    query = reader()
    query.prepareForTriggerAvailableNow()
    cluster.grow(5)
    start, end = first_batch(query)
    assert query.partitions(start, end) == []
    assert query.partitions(end, query.latestOffset(end, ALL)) == []


def test_start_beyond_the_end_of_a_log_is_data_loss(cluster, capsys):
    options = {"startingOffsets": '{"t":{"0":150,"1":20}}', "fetchOffset.numRetries": "0"}
    query = reader(**options)
    with pytest.raises(DataLossError, match="startingOffsets starts t-0 at offset 150, but its log ends at offset 100"):
        first_batch(query)
    tolerant = reader(**options, failOnDataLoss="false")
    assert bounds(tolerant.partitions(*first_batch(tolerant))) == [("t", 1, 20, 60)]
    told = capsys.readouterr().err
    assert "its log ends at offset 100" in told
    assert "was read before" not in told


def test_a_new_leader_that_answers_too_little_is_asked_again(cluster):
    query = reader(startingOffsets="earliest")
    _, end = first_batch(query)
    cluster.grow(5)
    cluster.stale_answers = [50, 50]
    assert positions(query.latestOffset(end, ALL)) == {T0: 105, T1: 65}


def test_a_checkpoint_of_the_connector_is_continued(cluster):
    query = reader()
    later = query.latestOffset({"t": {"0": 30, "1": 60}}, ALL)
    assert TOPIC_IDS in later
    assert bounds(query.partitions({"t": {"0": 30, "1": 60}}, later)) == [("t", 0, 30, 100)]


def test_a_checkpoint_of_another_source_stops_the_query(cluster):
    with pytest.raises(CheckpointError, match="another checkpointLocation"):
        reader().latestOffset({"logOffset": 5}, ALL)


def test_tasks_share_a_batch_when_options_say_so(cluster):
    query = reader(startingOffsets="earliest", maxRecordsPerPartition="40")
    assert len(query.partitions(*first_batch(query))) == 5


def test_small_ranges_share_a_task(cluster):
    query = reader(startingOffsets="earliest")
    batch = first_batch(query)
    assert len(query.partitions(*batch)) == 1
    assert bounds(query.partitions(*batch)) == [("t", 0, 0, 100), ("t", 1, 10, 60)]
    assert len(reader(minRecordsPerPartition="75").partitions(*batch)) == 2


def test_stop_closes_the_connections(cluster):
    query = reader()
    query.initialOffset()
    query.stop()
    assert cluster.closed
