"""The metrics of replica fetchers, by Apache Kafka's names."""

from __future__ import annotations

from kafkacore.replication.fetchers import Address, FetcherMeasures, Fetchers
from kafkacore.server.metrics import fetcher_metrics


class MeasuredFetchers(Fetchers):
    def __init__(self, measures: list[FetcherMeasures]) -> None:
        self._measures = measures

    def measures(self) -> list[FetcherMeasures]:
        return self._measures


def test_metrics_have_the_greatest_lag_and_each_fetchers_counts_when_there_are_two_fetchers() -> None:
    measures = [
        FetcherMeasures(2, 0, Address("b", 9092), requests=7, appended_bytes=100, most_lag=3, partitions=5, failed=1),
        FetcherMeasures(3, 1, None, requests=8, appended_bytes=200, most_lag=9, partitions=5, failed=2),
    ]
    samples = {each.mbean: each.value for each in fetcher_metrics(MeasuredFetchers(measures))}
    manager = "kafka.server:type=ReplicaFetcherManager,name=%s,clientId=Replica"
    assert samples[manager % "MaxLag"] == 9
    assert samples[manager % "FailedPartitionsCount"] == 3
    first = "clientId=ReplicaFetcherThread-0-2,brokerHost=b,brokerPort=9092"
    assert samples[f"kafka.server:type=FetcherStats,name=RequestsPerSec,{first}"] == 7
    assert samples[f"kafka.server:type=FetcherStats,name=BytesPerSec,{first}"] == 100


def test_lag_is_zero_when_nothing_is_followed() -> None:
    samples = {each.name: each.value for each in fetcher_metrics(MeasuredFetchers([]))}
    assert samples == {"MaxLag": 0, "FailedPartitionsCount": 0, "DeadThreadCount": 0}
