"""The metrics of replica fetchers, under Apache Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kafkacore.replication.fetchers import Address, FetcherMeasures, Fetchers
from kafkacore.replication.request_rates import RequestRates
from kafkacore.server.metrics import fetcher_metrics


class Followed(NamedTuple):
    topic: str
    index: int
    fetch_lag: int


class MeasuredFetchers(Fetchers):
    def __init__(self, measures: list[FetcherMeasures]) -> None:
        self._measures = measures
        self.partitions: list[Any] = []

    def measures(self) -> list[FetcherMeasures]:
        return self._measures

    def followed(self) -> list[Any]:
        return self.partitions

    def least_rate(self, measures: Iterable[FetcherMeasures]) -> float:
        assert measures is self._measures
        return 2.5


def test_metrics_have_the_greatest_lag_and_each_fetchers_counts_when_there_are_two_fetchers() -> None:
    measures = [
        FetcherMeasures(2, 0, Address("b", 9092), requests=7, appended_bytes=100, most_lag=3, partitions=5, failed=1),
        FetcherMeasures(3, 1, None, requests=8, appended_bytes=200, most_lag=9, partitions=5, failed=2),
    ]
    fetchers = MeasuredFetchers(measures)
    fetchers.partitions = [(Followed("a", 4, 17), 2, 0), (Followed("b", 0, -1), 3, 1)]
    samples = {each.mbean: each.value for each in fetcher_metrics(fetchers)}
    manager = "kafka.server:type=ReplicaFetcherManager,name=%s,clientId=Replica"
    assert samples[manager % "MaxLag"] == 9
    assert samples[manager % "FailedPartitionsCount"] == 3
    assert samples[manager % "MinFetchRate"] == 2.5
    lag = "kafka.server:type=FetcherLagMetrics,name=ConsumerLag"
    assert {name: value for name, value in samples.items() if name.startswith(lag)} == {
        f"{lag},clientId=ReplicaFetcherThread-0-2,topic=a,partition=4": 17
    }, "a partition that was not fetched yet has no lag"
    first = "clientId=ReplicaFetcherThread-0-2,brokerHost=b,brokerPort=9092"
    assert samples[f"kafka.server:type=FetcherStats,name=RequestsPerSec,{first}"] == 7
    assert samples[f"kafka.server:type=FetcherStats,name=BytesPerSec,{first}"] == 100


def test_lag_is_zero_when_nothing_is_followed() -> None:
    samples = {each.name: each.value for each in fetcher_metrics(MeasuredFetchers([]))}
    assert samples == {"MaxLag": 0, "FailedPartitionsCount": 0, "DeadThreadCount": 0, "MinFetchRate": 2.5}


def test_least_rate_is_the_rate_of_the_slowest_fetcher_in_the_last_minute() -> None:
    now_s = 0.0
    rates = RequestRates(lambda: int(now_s * 1e9))
    assert rates.least({}) == 0
    now_s = 10
    assert rates.least({"slow": 20, "fast": 90}) == 2
    now_s = 60
    assert rates.least({"slow": 30, "fast": 4000}) == 0.5, "the rate must count from the start, a minute ago"
    now_s = 75
    assert rates.least({"slow": 30 + 65, "fast": 4000}) == 75 / 65, "the rate must count from the tenth second"
    now_s = 500
    assert rates.least({"slow": 95, "new": 950}) == 0
