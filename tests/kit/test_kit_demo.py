"""`make demo` with a small text. Every chapter is printed and succeeds."""

import shutil
import subprocess

from processes import PEERS, ROOT

TIMEOUT_S = 200
KAFKACORE = ROOT / ".venv" / "bin" / "kafkacore"


def test_demo_prints_every_chapter() -> None:
    done = subprocess.run(
        [KAFKACORE, "demo", "--records", "3000"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    for told in (
        "3,000 lines of Python's standard library",
        "One node, broker and controller, without any configuration",
        "written, lz4, acknowledged by all replicas",
        "read back: every record unchanged and in order",
        "does the same with 300 records",
        "One record at a time, 1,000 times",
        "all 300 records have been read, and none was missed",
        "all 3,000 acknowledged records are there, each once and in order: nothing was lost",
        "each of 3 partitions has 3 replicas",
        "was killed; another replica leads, and the producer continues",
        "longest stall:",
        "is back: it has caught up, and was in sync",
        "records have been acknowledged since then; no broker needed a controller",
        "dev --topic mine:3",
        "make test",
    ):
        assert told in done.stdout, done.stdout
    if shutil.which("java") and (PEERS / "kafka-4.3.1" / ".complete").exists():
        assert "Apache Kafka 4.3.1 takes the place of a broker" in done.stdout, done.stdout
        assert "continues with its id and its directory\nit was in sync" in done.stdout, done.stdout
        assert "it leads partition" in done.stdout, done.stdout
    else:
        assert "not shown here: a broker of Apache Kafka" in done.stdout, done.stdout
    assert "and 0 in flight" not in done.stdout, done.stdout
    assert done.stdout.count("each once and in order: nothing was lost") == 2, done.stdout
