"""`python -m benchmarks.controller` measures the cost of the controller's decisions and of its metadata image, for
several numbers of partitions.

- zone: nine brokers in three racks, topics of one partition, RF 3, placed in stripes. One check of the sessions finds
  that the sessions of all three brokers of one rack have expired. The time runs from the check to the published image.
  It includes the time to build the batches for the log, but the commit itself takes no time. "follow" is the time in
  which another node reads those batches and replays them.
- snapshot: a node reads a snapshot with topics of ten partitions, RF 3, and builds an image. The memory figure is the
  growth of the process, which the image alone causes.
- failover: see `failover.py`.

Times are in milliseconds, wall time in one column and CPU time in the next. If the machine does other work, the two
differ. `--plot FILE` also draws the CPU time and the memory of zone and snapshot against the number of partitions.
"""

import argparse
import ctypes
import gc
import logging
import random
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.controller.failover import failover

from kafkacore._fast.record.batch import Batches
from kafkacore.config import BrokerConfig
from kafkacore.controller.common.placement import UsableBroker, place
from kafkacore.controller.quorum.controller import QuorumController
from kafkacore.controller.quorum.decisions import Settings
from kafkacore.metadata.partition_records import PartitionRecords, PartitionRun, record_count
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.metadata.records import RecordWriter, decode_batch
from kafkacore.metadata.snapshot import image_of, records_of
from kafkacore.protocol.features import LATEST_METADATA_VERSION, honoured_levels
from kafkacore.protocol.messages import FeatureLevelRecord, RegisterBrokerRecord, TopicRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import control
from kafkacore.raft.committed import CommittedBatch

BROKERS, RACKS, FACTOR = 9, 3, 3
COUNTS = (1_000, 10_000, 100_000, 1_000_000)
PARTITIONS_OF_A_TOPIC = 10
RECORDS_OF_A_BATCH = 10_000
MAX_BATCH_BYTES = 8 << 20
SESSION_MS = 9_000
EPOCH = 1
CONFIG = BrokerConfig(
    {
        "process.roles": "controller",
        "node.id": "100",
        "controller.quorum.voters": "100@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://:9093",
        "log.dirs": "/nowhere",
        "min.insync.replicas": "2",
        "metadata.max.idle.interval.ms": "0",
    }
)


def cluster_records(topics, partitions):
    """Returns the records of a snapshot of the cluster."""
    levels = honoured_levels(LATEST_METADATA_VERSION)
    for name, level in levels.items():
        if level and name != "kraft.version":
            yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in range(1, BROKERS + 1):
        yield RegisterBrokerRecord(
            broker_id=broker, broker_epoch=broker, incarnation_id=uuid(broker), rack=f"rack{broker % RACKS}",
            fenced=False, log_dirs=[directory(broker)],
            end_points=[RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)],
        )  # fmt: skip
    usable = [UsableBroker(each, f"rack{each % RACKS}", False) for each in range(1, BROKERS + 1)]
    placed = iter(place(usable, topics * partitions, FACTOR, random.Random(1)))
    for topic in range(topics):
        columns = PartitionRecords()
        yield TopicRecord(name=f"topic-{topic}", topic_id=uuid(1000 + topic))
        columns.number(uuid(1000 + topic), 0, partitions)
        for _ in range(partitions):
            replicas = tuple(next(placed))
            columns.place(1, replicas, replicas, replicas[0], [directory(each) for each in replicas])
        yield PartitionRun(uuid(1000 + topic), columns, 0, partitions)


def uuid(number):
    return Uuid(number.to_bytes(16, "big"))


def directory(broker):
    return uuid(10**6 + broker)


class Log:
    """A stub of the Raft quorum. It builds the batches, commits them immediately, and keeps them."""

    leader_id, kraft_version = 100, 1

    def __init__(self):
        self.end_offset = 1
        self.batches = []

    def leads(self, epoch):
        return True

    def append(self, records, values):
        data = control.data_batch(values, self.end_offset, EPOCH, 0, MAX_BATCH_BYTES)
        base, self.end_offset = self.end_offset, self.end_offset + record_count(records)
        self.batches.append((CommittedBatch(base, self.end_offset - 1, EPOCH, 0, records, len(data)), data))
        return self.end_offset - 1


class Stopwatch:
    def __enter__(self):
        gc.collect()
        gc.disable()
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_):
        self.wall_ms = (time.perf_counter() - self.wall) * 1e3
        self.cpu_ms = (time.process_time() - self.cpu) * 1e3
        gc.enable()


def lose_a_zone(image):
    """Measures the controller's decision and new image, and then another node's replay of the batches."""
    log, now = Log(), [0]
    log.end_offset = image.offset + 1
    published = MetadataPublisher()
    controller = QuorumController(
        Settings("cluster", CONFIG, random.Random(1)), log, [], lambda: now[0], on_root=published.adopt
    )
    controller.image = image
    controller.on_leading(EPOCH)
    others = [each for each in image.brokers.values() if each.broker_id % RACKS]
    while now[0] < SESSION_MS - 1:
        now[0] += 1
        for each in others if now[0] % 1000 == 0 else ():
            controller._liveness.heard(each.broker_id, each.epoch, now[0])
        controller.next_tick_ms  # noqa: B018 - looks at the clock, so that the time counts as silence
    now[0] += 1
    with Stopwatch() as decided:
        controller.tick()
        for batch, _ in log.batches:
            controller.on_batch(batch)
    lost = [each for each in published.image.brokers.values() if each.fenced]
    assert len(lost) == BROKERS // RACKS
    assert published.image is controller.image
    follower = MetadataPublisher()
    follower._head = image
    with Stopwatch() as followed:
        for _, data in log.batches:
            for batch in Batches(data):
                follower.apply(decode_batch(batch), batch.base_offset, EPOCH, 0)
    return decided, followed, len(log.batches)


def zone(counts, rounds):
    print(
        "| partitions | decided and published ms | CPU ms | follow ms | CPU ms | batches |\n|---|---|---|---|---|---|"
    )
    series = {}
    for count in counts:
        image = image_of(cluster_records(count, 1), 0, EPOCH, 0)
        runs = [lose_a_zone(image) for _ in range(rounds + 1)][1:]
        told = [
            statistics.median(getattr(run[part], name) for run in runs)
            for part in (0, 1) for name in ("wall_ms", "cpu_ms")
        ]  # fmt: skip
        print(f"| {count:,} | " + " | ".join(f"{each:.1f}" for each in told) + f" | {runs[0][2]} |", flush=True)
        series.setdefault("zone lost: decided and published", []).append((count, told[1]))
        series.setdefault("zone lost: replayed by another node", []).append((count, told[3]))
    return series


def snapshot_batches(count):
    """Returns the batches of a snapshot in the format that they have on disk."""
    image = image_of(cluster_records(count // PARTITIONS_OF_A_TOPIC, PARTITIONS_OF_A_TOPIC), 0, EPOCH, 0)
    writer, values, made = RecordWriter(LATEST_METADATA_VERSION), [], []
    for record in records_of(image):
        values.append(writer.encode(record))
        if len(values) == RECORDS_OF_A_BATCH:
            made.append(control.data_batch(values, 0, EPOCH, 0, MAX_BATCH_BYTES))
            values = []
    made.append(control.data_batch(values, 0, EPOCH, 0, MAX_BATCH_BYTES))
    return made


def snapshot(counts, rounds):
    print("| partitions | loaded ms | CPU ms | image MiB |\n|---|---|---|---|")
    times, sizes = [], []
    for count in counts:
        # A process of its own has no freed memory that the image could use without growth.
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            wall, cpu, memory = process.submit(load_snapshot, count, rounds).result()
        print(f"| {count:,} | {wall:.0f} | {cpu:.0f} | {memory:.1f} |", flush=True)
        times.append((count, cpu))
        sizes.append((count, memory))
    return {"snapshot loaded": times}, {"memory of the image": sizes}


def load_snapshot(count, rounds):
    """Returns the medians of wall time and CPU time in ms, and the memory of the image in MiB."""
    batches = snapshot_batches(count)
    trim = ctypes.CDLL(None).malloc_trim  # returns freed memory to the kernel
    gc.collect()
    trim(0)
    runs, memory = [], []
    for _ in range(rounds):
        before = rss_mib()
        with Stopwatch() as loaded:
            image = image_of(
                (record for data in batches for batch in Batches(data) for record in decode_batch(batch)), 0, EPOCH, 0
            )
        gc.collect()
        trim(0)
        runs.append(loaded)
        memory.append(rss_mib() - before)
        assert image.partition_count == count
        del image
        gc.collect()
    wall, cpu = (statistics.median(getattr(run, name) for run in runs) for name in ("wall_ms", "cpu_ms"))
    return wall, cpu, memory[0]  # the later images use the memory of the first


def plot(times, sizes, path):
    """Draws each series, a list of (partitions, value), in one of two panels: CPU time in ms, and memory in MiB."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 5))
    for panel, series, unit in zip(panels, (times, sizes), ("CPU ms", "MiB"), strict=True):
        for name, points in series.items():
            panel.plot(*zip(*points, strict=True), marker="o", label=name)
        panel.set(xscale="log", yscale="log", xlabel="partitions", ylabel=unit)
        panel.grid(visible=True, which="major", alpha=0.3)
        if series:
            panel.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def rss_mib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / (1 << 20)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.controller", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", nargs="+", choices=("zone", "snapshot", "failover"), default=["zone", "snapshot"])
    parser.add_argument("--counts", nargs="+", type=int, default=list(COUNTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draws zone and snapshot; needs matplotlib")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    times, sizes = {}, {}
    if "zone" in arguments.rows:
        times |= zone(arguments.counts, arguments.rounds)
    if "snapshot" in arguments.rows:
        loaded, sizes = snapshot(arguments.counts, arguments.rounds)
        times |= loaded
    if arguments.plot is not None:
        plot(times, sizes, arguments.plot)
    if "failover" in arguments.rows:
        failover(arguments.counts, arguments.rounds)
