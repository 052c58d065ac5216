"""Our compaction compared with Apache Kafka's own cleaner. Both must leave the same batches and the same records."""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from brokers import java, need_jars
from compacting import ABORT, COMMIT, NOW, Plain, Writer, compact, plain
from kafka_tools import KafkaTools
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches
from kafkacore._fast.world.environment import Environment
from kafkacore.storage.log_manager import LogManager
from old_messages import entries

pytestmark = pytest.mark.peer("apache-4.3")

JUDGE = Path(__file__).parent / "java" / "CleanerJudge.java"
RELEASE = "4.3.1"
RETENTION_MS = 1000
ROUNDS = (NOW, NOW + 500, NOW + 3000)  # before and after the delete horizon that the first round sets
LOGS = 24
JAVA_TIMEOUT_S = 120
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
KEYS = [None, b"", *(b"key %d" % i for i in range(8))]


def write(directory: Path, seed: int) -> None:
    """Writes three segments and an active segment, as a crashed broker leaves them. If `seed` is below a third of LOGS,
    the log begins with messages of magic 0 and 1."""
    chance = random.Random(seed)
    raws: list[tuple[int, bytes]] = []
    writer = Writer(lambda raw: raws.append((struct.unpack_from(">q", raw)[0], raw)))
    if seed < LOGS // 3:
        for magic, codec in ((0, "none"), (0, "gzip"), (1, "none"), (1, "snappy"), (1, "gzip")):
            raws.append((writer.offset, entries(writer.offset, magic, codec, count=4)))
            writer.offset += 4
    for _ in range(60):
        if chance.random() < 0.25:
            writer.marker(chance.randint(3, 5), chance.choice((ABORT, COMMIT)))
            continue
        records = [
            (chance.choice(KEYS), None if chance.random() < 0.3 else chance.randbytes(30), [("h", b"1")], at)
            for at in range(chance.randint(1, 5))
        ]
        producer, gap = chance.randint(-1, 5), chance.choice((0, 0, 0, 4))
        writer.data(producer, records, chance.choice(CODECS), gap, chance.random() < 0.2)
    writer.decide()
    directory.mkdir(parents=True)
    for part in range(4):
        some = raws[len(raws) * part // 4 : len(raws) * (part + 1) // 4]
        (directory / f"{0 if part == 0 else some[0][0]:020}.log").write_bytes(b"".join(raw for _, raw in some))


def ours(root: Path) -> None:
    """Runs the same rounds as the judge. Each round compacts the whole log."""
    settings = LogSettings(compact_policy=True, delete_policy=False)
    manager = LogManager(Environment(), [str(root)], lambda topic: settings)
    manager.load()
    (handle,) = list(manager)
    for now_ms in ROUNDS:
        compact(handle, 0, handle.segments()[-1].base_offset, now_ms, RETENTION_MS)
    manager.close()


def theirs(roots: list[Path]) -> None:
    command = [*java(RELEASE, "512m"), str(JUDGE), str(1 << 20), str(RETENTION_MS)]
    command += [",".join(map(str, ROUNDS)), *map(str, roots)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(roots) * len(ROUNDS), done.stdout + done.stderr


def batches(root: Path) -> list[Plain]:
    found = []
    for path in sorted(root.glob("orders-0/*.log")):
        for batch in Batches(path.read_bytes()):
            assert batch.crc_ok
            found.append(plain(batch) if batch.magic == 2 else batch.base_offset)
    return found


def aborted(root: Path) -> list[tuple[int, ...]]:
    return [
        (producer, first, last)
        for path in sorted(root.glob("orders-0/*.txnindex"))
        for _, producer, first, last, _ in struct.iter_unpack(">hqqqq", path.read_bytes())
    ]


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_jars(RELEASE)
    root = tmp_path_factory.mktemp("cleaner")
    for seed in range(LOGS):
        write(root / "ours" / str(seed) / "orders-0", seed)
        shutil.copytree(root / "ours" / str(seed), root / "theirs" / str(seed))
    theirs([root / "theirs" / str(seed) for seed in range(LOGS)])
    for seed in range(LOGS):
        ours(root / "ours" / str(seed))
    return root


@pytest.mark.parametrize("seed", range(LOGS))
def test_compaction_leaves_the_records_that_apache_kafka_leaves(compacted: Path, seed: int) -> None:
    mine, its = compacted / "ours" / str(seed), compacted / "theirs" / str(seed)
    assert batches(mine) == batches(its)
    assert aborted(mine) == aborted(its)


def test_kafka_dump_log_reads_our_compacted_segments(compacted: Path) -> None:
    path = min((compacted / "ours" / "20").glob("orders-0/*.log"))
    with contextlib.closing(KafkaTools("apache-4.3")) as tools:
        out = tools.run("kafka-dump-log", "--files", path, "--deep-iteration").out
    assert out.count("isvalid: true") == len(list(Batches(path.read_bytes()))) > 3
    assert "isvalid: false" not in out
