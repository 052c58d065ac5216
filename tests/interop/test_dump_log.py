"""`kafkacore dump-log` compared with kafka-dump-log of Apache Kafka 4.3. Both must print the same lines for the same
files, even if a file is damaged."""

import json
import random
import shutil
import struct
import subprocess
import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import old_messages
from golden import golden_file
from kafka_tools import KafkaTools
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.tools.main import main

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SUFFIXES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"}
RECORDS = 30
DAMAGED = 60
DECODER_PACKAGE = "org.apache.kafka.tools.api"
OPTIONS = {
    ".log": [
        (),
        ("--deep-iteration",),
        ("--print-data-log",),
        ("--print-data-log", "--skip-record-metadata"),
        ("--deep-iteration", "--skip-record-metadata"),
        ("--deep-iteration", "--max-bytes", "700"),
        ("--key-decoder-class", f"{DECODER_PACKAGE}.StringDecoder"),
    ],
    ".index": [(), ("--index-sanity-check",), ("--verify-index-only",), ("--max-message-size", "200000")],
    ".timeindex": [(), ("--index-sanity-check",), ("--verify-index-only",)],
    ".checkpoint": [(), ("--cluster-metadata-decoder",)],
}
DECODERS = {
    "__cluster_metadata-0": "--cluster-metadata-decoder",
    "__consumer_offsets-0": "--offsets-decoder",
    "__transaction_state-0": "--transaction-log-decoder",
}


def produce(bootstrap):
    """Produces records of every codec with both timestamp types, null keys, null values, headers, and bytes that are
    not valid UTF-8."""
    now = int(time.time() * 1000)
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": codec == "lz4"}
        )
        for topic in ("create", "append"):
            for at in range(RECORDS):
                producer.produce(
                    topic,
                    key=None if at % 3 else f"k{at}é",
                    value=None if at % 7 == 6 else b"v" * at + b"\xff\x01\n",
                    partition=0,
                    timestamp=now + (at if at % 2 else -at),
                    headers=[("h", b"1"), ("é", None)][: at % 3],
                )
            producer.flush()


def commit_and_abort(bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "dump"})
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction) * 2:
        producer.begin_transaction()
        producer.produce("transactions", b"x", partition=0)
        producer.flush()
        end()


def commit_offsets(bootstrap):
    """Commits offsets as a member of a classic group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["create"])
    deadline = time.monotonic() + 30
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition("create", 0, 5, "metadata")], asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def their_data(apache_kafka):
    """Returns the log directory of an Apache Kafka node that has shut down cleanly."""
    broker = apache_kafka(
        "apache-4.3",
        {
            "log.index.interval.bytes": "100",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        },
    )
    topics = [
        NewTopic("create", 1),
        NewTopic("append", 1, config={"message.timestamp.type": "LogAppendTime"}),
        NewTopic("transactions", 1),
    ]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics(topics).values():
        made.result()
    produce(broker.bootstrap)
    commit_and_abort(broker.bootstrap)
    commit_offsets(broker.bootstrap)
    broker.stop()
    return broker.log_dir


@pytest.fixture(scope="module")
def tools(their_data):
    """Starts Apache Kafka's tools. If they are missing, `their_data` skips the test."""
    del their_data
    with closing(KafkaTools("apache-4.3")) as made:
        yield made


def files(log_dir):
    return sorted(path for path in log_dir.rglob("*") if path.suffix in SUFFIXES)


@pytest.fixture
def ours(capfdbinary):
    def run(path, *options):
        code = main(["dump-log", "--files", str(path), *options])
        told = capfdbinary.readouterr()
        return code, told.out.decode(), told.err.decode()

    return run


def compare(tools, ours, paths):
    """Asserts that both tools print the same for each file. Returns the number of dumps."""
    dumps = 0
    for path in paths:
        options = list(OPTIONS.get(path.suffix, [()]))
        if path.suffix == ".log" and path.parent.name in DECODERS:
            decoder = DECODERS[path.parent.name]
            options += [(decoder,), (decoder, "--skip-record-metadata")]
        for each in options:
            theirs = tools.run("kafka-dump-log", "--files", path, *each)
            assert ours(path, *each) == (0, theirs.out, theirs.err), (path, each)
            dumps += 1
    return dumps


def test_files_of_apache_kafka_are_dumped_alike(tools, their_data, ours):
    found = files(their_data)
    assert {path.suffix for path in found} == SUFFIXES
    assert compare(tools, ours, found) > len(found)


def test_files_of_apache_kafka_are_sound(their_data, capfd):
    logs = [str(path) for path in files(their_data)]
    assert main(["dump-log", "--verify", "--deep-iteration", *logs]) == 0, capfd.readouterr()


def test_files_of_ours_are_dumped_alike(tools, start_node, ours):
    node = start_node("--topic", "create", "--topic", "append", overrides={"log.index.interval.bytes": "100"})
    produce(node.bootstrap)
    assert node.stop() == 0, node.child.tail()
    found = files(node.log_dir)
    assert {path.suffix for path in found} >= SUFFIXES - {".txnindex"}
    assert compare(tools, ours, found) > len(found)


def test_segments_of_old_releases_are_dumped_alike(tools, ours, tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(old_messages.segment())
    assert compare(tools, ours, [path]) == len(OPTIONS[".log"])


@pytest.mark.parametrize(("key", "value"), [("Long", "Integer"), ("Integer", None), (None, "Long")])
def test_numeric_keys_and_values_are_dumped_alike(tools, ours, tmp_path, key, value):
    path = tmp_path / "00000000000000000000.log"
    builder = RecordBatchBuilder()
    for number in (0, 1, -1, 2**63 - 1, -(2**63)):
        builder.append(1_700_000_000_000, struct.pack(">q", number), struct.pack(">q", ~number))
    builder.append(1_700_000_000_001, None, None)
    path.write_bytes(builder.build())
    options = []
    for option, decoder in (("--key-decoder-class", key), ("--value-decoder-class", value)):
        options += [] if decoder is None else [option, f"{DECODER_PACKAGE}.{decoder}Decoder"]
    theirs = tools.run("kafka-dump-log", "--files", path, *options)
    assert ours(path, *options) == (0, theirs.out, theirs.err)


def test_metadata_records_of_every_type_are_dumped_alike(tools, ours, tmp_path):
    """Apache Kafka made these records at random, from its own metadata images."""
    path = tmp_path / "00000000000000000000.log"
    values = [
        bytes.fromhex(value)
        for history in json.loads(golden_file("4.3", "Images").read_text())[:12]
        for value in history["records"]
    ]
    assert len({value[1] for value in values}) > 20
    data, offset = b"", 0
    for at in range(0, len(values), 100):
        builder = RecordBatchBuilder(base_offset=offset)
        for value in values[at : at + 100]:
            builder.append(1_700_000_000_000, None, value)
            offset += 1
        data += builder.build()
    path.write_bytes(data)
    theirs = tools.run("kafka-dump-log", "--files", path, "--cluster-metadata-decoder")
    code, out, err = ours(path, "--cluster-metadata-decoder")
    assert (code, out.splitlines(), err) == (0, theirs.out.splitlines(), theirs.err)


def damaged(rng, data):
    changed = bytearray(data)
    kind = rng.randrange(4)
    if kind == 0:
        del changed[rng.randrange(len(changed)) :]
    elif kind == 1:
        changed += rng.choice([bytes(100), rng.randbytes(rng.randrange(1, 80))])
    elif kind == 2:
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    else:
        changed[rng.randrange(min(len(changed), 400))] = rng.choice([0, 127, 128, 255])
    return bytes(changed)


def test_damaged_files_are_dumped_alike(tools, their_data, ours, tmp_path):
    """Our tool prints the same lines as kafka-dump-log. If kafka-dump-log fails with a stack trace after some lines,
    our tool prints these lines, and then a line that names the file."""
    rng = random.Random(1)
    sound = [path for path in files(their_data) if path.suffix in {".log", ".index", ".timeindex"}]
    sound = [path for path in sound if path.stat().st_size and path.parent.name != "__cluster_metadata-0"]
    failures = 0
    for _ in range(DAMAGED):
        path = rng.choice(sound)
        for beside in path.parent.glob(f"{path.stem}.*"):
            shutil.copy(beside, tmp_path / beside.name)
        broken = tmp_path / path.name
        broken.write_bytes(damaged(rng, path.read_bytes()))
        theirs = tools.attempt("kafka-dump-log", "--files", broken)
        code, out, err = ours(broken)
        assert (code, out) == (theirs.exit, theirs.out), (path, theirs.err, err)
        failures += code
        assert code == 0 or str(broken.with_suffix("")) in err
    assert 0 < failures < DAMAGED


def test_damaged_producer_snapshots_are_reported(tools, their_data, ours, tmp_path):
    """Our tool reports the same snapshots as kafka-dump-log. It exits with an error, but kafka-dump-log exits with
    0."""
    rng = random.Random(1)
    sound = [path for path in files(their_data) if path.suffix == ".snapshot"]
    for _ in range(DAMAGED // 3):
        path = rng.choice(sound)
        broken = tmp_path / path.name
        broken.write_bytes(damaged(rng, path.read_bytes()))
        theirs = tools.run("kafka-dump-log", "--files", broken)
        code, out, err = ours(broken)
        assert out == theirs.out
        assert (code, err.startswith(f"{broken}: ")) == ((1, True) if theirs.err else (0, False)), theirs.err


def test_dump_ends_quietly_when_its_reader_closes_the_pipe(their_data):
    path = next(path for path in files(their_data) if path.suffix == ".log" and path.stat().st_size > 1000)
    command = f".venv/bin/kafkacore dump-log --print-data-log {path} {path} {path} | head -1"
    done = subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True, timeout=20)
    assert done.stdout == f"Dumping {path}\n"
    assert done.stderr == ""
