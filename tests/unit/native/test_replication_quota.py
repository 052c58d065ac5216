"""The quota of throttled replication: its window, its bound, and how it compares with Kafka's SimpleRate."""

import random

import pytest

from kafkacore._fast.log.replication_quota import NO_BOUND, ReplicationQuota
from seeds import SEED

SAMPLES, SAMPLE_MS = 11, 1000


class SimpleRate:
    """Kafka's SimpleRate over a SampledStat, written from the documentation."""

    def __init__(self):
        self.samples = []  # a list of [started, last, bytes], with the current sample last
        self.ring = []
        self.current = 0

    def record(self, size_bytes, now_ms):
        if not self.ring:
            self.ring.append([now_ms, now_ms, 0])
        if now_ms - self.ring[self.current][0] >= SAMPLE_MS:
            self.current = (self.current + 1) % (SAMPLES + 1)
            if self.current == len(self.ring):
                self.ring.append([now_ms, now_ms, 0])
            self.ring[self.current] = [now_ms, now_ms, 0]
        self.ring[self.current][1] = now_ms
        self.ring[self.current][2] += size_bytes

    def measure(self, now_ms):
        for sample in self.ring:
            if now_ms - sample[1] >= SAMPLES * SAMPLE_MS:
                sample[:] = [now_ms, now_ms, 0]
        oldest = min((sample[0] for sample in self.ring), default=now_ms)
        return sum(sample[2] for sample in self.ring) * 1000 / max(now_ms - oldest, SAMPLE_MS)


def test_rate_equals_a_simple_rate():
    source = random.Random(SEED)
    quota, model, now_ms = ReplicationQuota(), SimpleRate(), 5_000
    for _ in range(5_000):
        now_ms += source.choice([0, 1, 90, 400, 1000, 2500, 30_000])
        if source.random() < 0.7:
            size_bytes = source.randrange(1 << 20)
            quota.record(size_bytes, now_ms)
            model.record(size_bytes, now_ms)
        assert quota.rate(now_ms) == pytest.approx(model.measure(now_ms))


def test_quota_is_exceeded_until_the_window_has_passed():
    quota = ReplicationQuota(SAMPLES, SAMPLE_MS, 1000)
    assert not quota.exceeded(0)
    quota.record(1000, 0)
    assert not quota.exceeded(0), "the first bytes must count over a whole sample"
    quota.record(1001, 0)
    assert quota.exceeded(1)
    assert quota.exceeded(2000)
    assert not quota.exceeded(2002)
    quota.record(100_000, 3000)
    assert quota.exceeded(13_999)
    assert not quota.exceeded(14_000), "all samples have left the window"


def test_quota_without_a_bound_is_never_exceeded():
    quota = ReplicationQuota()
    assert quota.bytes_per_second == NO_BOUND
    quota.record(1 << 50, 0)
    assert not quota.exceeded(0)


def test_bound_of_zero_lets_nothing_but_the_first_bytes_through():
    quota = ReplicationQuota(bytes_per_second=0)
    assert not quota.exceeded(0)
    quota.record(1, 0)
    assert quota.exceeded(10_999)


@pytest.mark.parametrize(("samples", "sample_ms"), [(0, 1000), (11, 0)])
def test_window_without_samples_is_refused(samples, sample_ms):
    with pytest.raises(ValueError, match="at least one sample"):
        ReplicationQuota(samples, sample_ms)
