"""Converts the measurements of a plane (listeners, processors and handler loop) into samples for a registry."""

from __future__ import annotations

from collections.abc import Iterator

from kafkacore.network.metrics import Histogram, PlaneMetrics
from kafkacore.network.plane import Plane
from kafkacore.observability.catalogue import sample
from kafkacore.observability.metrics import Buckets, Sample, Source


def plane_source(plane: Plane) -> Source:
    """Returns a source for a MetricRegistry."""
    metrics = PlaneMetrics(plane)

    def read() -> Iterator[Sample]:
        for each in metrics():
            value = Buckets(*each.value) if isinstance(each.value, Histogram) else each.value
            yield sample(each.type, each.name, value, each.tags)

    return read
