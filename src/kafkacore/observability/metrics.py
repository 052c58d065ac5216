"""A registry of metrics under Kafka's names (`kafka.server:type=...,name=...`), read on demand.

Most counters are in native memory. A source reads their values only during a scrape, so a metric that nobody scrapes
costs nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple


class Kind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Buckets(NamedTuple):
    """A histogram's state. `bounds` are inclusive upper bounds, in ascending order. `counts` has one entry more than
    `bounds`, for larger values."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float  # the sum of all observations


class Sample(NamedTuple):
    """The value of one MBean attribute. `group` is the JMX domain (`kafka.network`). `tags` are the parts of the name
    after type and name."""

    group: str
    type: str
    name: str
    kind: Kind
    value: float | Buckets
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def mbean(self) -> str:
        """The name in the form that Kafka's documentation and JMX tools use."""
        return f"{self.group}:type={self.type},name={self.name}" + "".join(
            f",{key}={value}" for key, value in self.tags
        )


Source = Callable[[], Iterable[Sample]]


class MetricRegistry:
    """The sources of one node."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        self._sources.append(source)

    def remove(self, source: Source) -> None:
        """Removes a source. Raises ValueError if it was not added."""
        self._sources.remove(source)

    def collect(self) -> Iterator[Sample]:
        for source in tuple(self._sources):
            yield from source()
