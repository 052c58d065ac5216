"""The metrics of topics, under Apache Kafka's names."""

from __future__ import annotations

from kafkacore._fast.log.traffic_counts import TrafficCounts
from kafkacore.replication.traffic import TopicTraffic, Traffic
from kafkacore.server.topic_metrics import purgatory_metrics, topic_metrics

COUNTS = TrafficCounts(*range(1, len(TrafficCounts._fields) + 1))
NAME = "kafka.server:type=BrokerTopicMetrics,name=%s"


def test_each_count_has_one_metric_when_all_topics_are_shown() -> None:
    shown = list(topic_metrics(COUNTS, []))
    assert sorted(each.value for each in shown) == sorted(COUNTS)
    assert len({each.name for each in shown}) == len(COUNTS)
    assert not any(each.tags for each in shown)
    values = {each.mbean: each.value for each in shown}
    assert values[NAME % "BytesInPerSec"] == COUNTS.bytes_in
    assert values[NAME % "ReassignmentBytesOutPerSec"] == COUNTS.reassignment_out


def test_topic_shows_its_nonzero_counts_and_leader_counts_only_when_it_is_led() -> None:
    counts = TrafficCounts(messages_in=5, bytes_out=7)
    topics = [TopicTraffic("led", True, counts), TopicTraffic("followed", False, counts)]
    tagged = {each.mbean: each.value for each in topic_metrics(counts, topics) if each.tags}
    assert tagged == {
        NAME % "MessagesInPerSec,topic=led": 5,
        NAME % "BytesOutPerSec,topic=led": 7,
        NAME % "BytesOutPerSec,topic=followed": 7,
    }


def test_waiting_requests_are_added_over_their_threads() -> None:
    shown = {
        each.mbean: each.value
        for each in purgatory_metrics({"Fetch": (2, 30)}, {"Fetch": (1, 3), "DeleteRecords": (1, 1)})
    }
    name = "kafka.server:type=DelayedOperationPurgatory,name=%s,delayedOperation=%s"
    assert shown == {
        name % (what, operation): value
        for operation, values in {"Produce": (0, 0), "Fetch": (3, 33), "DeleteRecords": (1, 1)}.items()
        for what, value in zip(("NumDelayedOperations", "PurgatorySize"), values, strict=True)
    }


def test_sum_does_not_fall_when_a_partition_is_neither_here_nor_gone_yet() -> None:
    traffic = Traffic()
    assert traffic.show(traffic.gone, TrafficCounts(bytes_in=9)).bytes_in == 9
    assert traffic.show(traffic.gone, TrafficCounts(bytes_in=2, fetches=1)) == TrafficCounts(bytes_in=9, fetches=1)
    traffic.retire(TrafficCounts(bytes_in=8))
    assert traffic.show(traffic.gone, TrafficCounts(bytes_in=2)).bytes_in == 10
