"""Both formats and a pipeline on Spark Connect, where the client has no JVM. A process can have only one kind of
session, so this test runs in its own process.
"""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", "4.2", reason="streams need PySpark 4.2: pip install kafkacore[spark], or ci/spark.sh")

from processes import PEERS, ROOT, need
from topic_filling import Topics

PACKAGES = PEERS / "spark-connect-packages"


@pytest.mark.timeout(600)
def test_formats_and_pipelines_work_through_spark_connect(our_node, topic_name, tmp_path):
    need((PACKAGES / ".complete").exists(), "the packages of Spark Connect's client are missing: ci/spark.sh")
    topic = Topics(our_node.bootstrap, topic_name).create(2)
    support = ROOT / "tests" / "support"
    program = [sys.executable, support / "connect_program.py", our_node.bootstrap, our_node.log_dir, topic, tmp_path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (support, PACKAGES)))}
    done = subprocess.run(
        list(map(str, program)), env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"] == "pyspark.sql.connect.session"
    assert found["values"] == list(range(100))
    assert (found["streamed"], found["lag"], found["payloads"]) == (100, 0, 0)
    assert found["events"][:2] == ["registered", "unfenced"]
