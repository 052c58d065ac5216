"""The oldest supported PySpark, in a separate environment. kafkacore supports batches with it, and refuses streams."""

import os
import subprocess

import pytest

from processes import PEERS, ROOT, need

OLDEST = "4.0.0"
PYTHON = PEERS / f"venv-spark-{OLDEST}" / "bin" / "python"
# A quarter of the tests: comparisons of reads with the connector, Spark's checks of a batch, writes, and errors.
CHOSEN = (
    "kafkacore and (nulls_headers or bounds_by or rows_that_are_written or chosen_columns or retention_deleted"
    " or keys_go_to) and not gzip and not snappy and not none"
)


def run(*command):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support")}
    done = subprocess.run(
        [PYTHON, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(900)
def test_batch_reads_and_writes_pass_with_the_oldest_pyspark():
    need(PYTHON.exists(), f"no PySpark {OLDEST}: ci/spark.sh")
    code, output = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", CHOSEN, "tests/spark/test_batch.py",
        "tests/spark/test_same_as_connector.py",
    )  # fmt: skip
    assert code == 0, output
    assert " passed" in output or "[100%]" in output


def test_a_stream_is_refused_with_the_oldest_pyspark():
    need(PYTHON.exists(), f"no PySpark {OLDEST}: ci/spark.sh")
    code, output = run(
        "-c",
        "from pyspark_kafkacore import DefaultSource\n"
        "source = DefaultSource({'kafka.bootstrap.servers': 'h:1', 'subscribe': 't'})\n"
        "source.streamReader(source.schema())",
    )
    assert code != 0
    assert "streams of format kafkacore need PySpark 4.2 or newer" in output
    assert f"this is PySpark {OLDEST}" in output
