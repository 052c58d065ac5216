"""`python -m benchmarks.node.partitions` measures how long a node with many partitions takes to start and to stop.

The benchmark measures three durations: from exec to the first ApiVersions answer, from exec to the first acknowledged
record in a new topic (see `benchmarks.peers.start`), and from SIGTERM to the end of the process. Our node and Apache
Kafka run alternately. Before the first start, each broker has filled its own directory with topics of 100 partitions,
with one record in each partition, and has shut down cleanly. The column "CPU s until then" is the CPU time that all
threads of the process, including the JVM's compiler and collector, use before the first answer. "RSS MiB" is the memory
of the process just before SIGTERM. Apache Kafka opens three files per partition. If this exceeds the limit of open
files, the output says so and the benchmark measures only our node.
"""

import argparse
import functools
import resource
import shutil
import statistics
import tempfile
from pathlib import Path

from benchmarks.peers import report, requests, start
from benchmarks.peers.contestants import starters
from benchmarks.peers.rows import one_record

from processes import wait_until

TOPIC_PARTITIONS = 100
THEIR_FILES, SPARE_FILES = 3, 1000
DEPTH = 50
TIMES = "first ApiVersions", "first acknowledged", "stop"
END_S = 300
OURS, THEIRS = "kafkacore", "apache-4.3"
HEAD = "| partitions | broker | first ApiVersions s | CPU s until then | first acknowledged s | stop s | RSS MiB |"


def fill(broker, topics, limit):
    """Produces a record to each partition. Restarts the broker in between when it would otherwise open too many
    files."""
    record, opened = one_record(), 0
    for topic in topics:
        if opened + TOPIC_PARTITIONS > limit:
            broker.child.terminate(END_S)
            broker.start()
            opened = 0
        requests.create(broker.bootstrap, [topic], TOPIC_PARTITIONS)
        served = functools.partial(requests.unserved, broker.bootstrap, {topic: TOPIC_PARTITIONS})
        wait_until(lambda served=served: served() == 0, END_S, f"every partition of {topic} serves")
        connection = requests.Connection(broker.bootstrap)
        for first in range(0, TOPIC_PARTITIONS, DEPTH):
            for partition in range(first, first + DEPTH):
                connection.send(requests.produce(topic, partition, record))
            for _ in range(DEPTH):
                answer = b"\0\0\0\0" + connection.receive()
                at = requests.produce_error_at(topic)
                assert answer[at : at + 2] == b"\0\0", answer
        connection.close()
        opened += TOPIC_PARTITIONS


def made(name, scratch, partitions, allowed):
    """Returns a stopped broker with `partitions` partitions."""
    broker = starters()[name](scratch / f"{name}-{partitions}")
    topics = [f"held-{number}" for number in range(partitions // TOPIC_PARTITIONS)]
    try:
        fill(broker, topics, allowed // (1 if name == OURS else THEIR_FILES) - SPARE_FILES)
    finally:
        broker.child.terminate(END_S)
    return broker


def measure(scratch, partitions, rounds, allowed):
    names, needed = [OURS], partitions * THEIR_FILES + SPARE_FILES
    if needed <= allowed:
        names.append(THEIRS)
    else:
        print(
            f"{THEIRS} is left out: {partitions} partitions need {needed} open files, the limit is {allowed}",
            flush=True,
        )
    brokers = {name: made(name, scratch, partitions, allowed) for name in names}
    found = start.measure(brokers, rounds)
    for name, figures in found.items():
        median = {key: statistics.median(one[key] for one in figures) for key in figures[0]}
        answered, acknowledged, stopped = (median[f"{what} ms"] / 1000 for what in TIMES)
        print(
            f"| {partitions} | {name} | {answered:.2f} | {median['CPU s']:.2f} | {acknowledged:.2f} | {stopped:.2f} "
            f"| {median['RSS MiB']:.0f} |",
            flush=True,
        )
    for broker in brokers.values():
        shutil.rmtree(broker.directory)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node.partitions", description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[2000, 6000, 20000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="the brokers' files go below it")
    asked = parser.parse_args()
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    asked.directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="partitions-", dir=asked.directory)).resolve()
    try:
        print(report.conditions(asked.rounds, scratch), HEAD, "|" + "---|" * 7, sep="\n")
        for partitions in asked.partitions:
            measure(scratch, partitions, asked.rounds, allowed)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
