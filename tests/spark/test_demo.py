"""A short run of `kafkacore spark demo` in the Spark session that all tests share. Each of the demo's proofs (queries
that compare results) must succeed, and the page must show this. Also tests which files the demo leaves.

The run takes some minutes, so it runs only with KAFKACORE_SPARK_DEMO=1. `make demo-spark` also fails if a proof fails.
"""

import os
import tempfile
from argparse import Namespace

import pytest

pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
pytest.importorskip("pyspark", "4.2", reason="streams need PySpark 4.2: pip install kafkacore[spark], or ci/spark.sh")

from kafkacore.tools import demo_apache, demo_spark
from kafkacore.tools.demo_spark import LIMIT_S, Demo
from processes import PATIENCE


@pytest.mark.skipif("KAFKACORE_SPARK_DEMO" not in os.environ, reason="takes minutes: set KAFKACORE_SPARK_DEMO=1")
@pytest.mark.timeout(600)
def test_demo_proves_its_counts_when_a_broker_is_killed_and_the_query_fails(spark, tmp_path, monkeypatch, capsys):
    # test_exactly_once kills the variant with Apache Kafka at each point, and here Apache Kafka would double the
    # duration of this test.
    monkeypatch.setattr(demo_apache, "find", lambda: None)
    demo = Demo(tmp_path / "nodes", tmp_path / "output", lambda: spark)
    demo.pipelines = ("placement-plan", "plane-report")  # test_pipelines and test_replica_audit run the others
    demo.show(seconds=1)
    assert len(demo.proofs) == 3
    assert all(proof.compared > 0 and proof.wrong == 0 for proof in demo.proofs), demo.proofs
    assert demo.again > 0
    assert [event.name for event in demo.events] == [
        "a leader is killed",
        "the broker is back in sync",
        "the query fails",
    ]
    page = (tmp_path / "output" / "report.html").read_text(encoding="utf-8")
    assert "All comparisons agree." in page
    assert "<h2>Placement plan</h2>" in page
    assert "<h2>Plane report</h2>" in page
    assert "requests/broker-101" in page
    assert page.count("<svg") == 8
    told = capsys.readouterr().out
    assert "was killed; another replica leads" in told
    assert "are in the topic twice, because the query failed there" in told
    assert "not shown here: the same with exactly-once" in told
    assert 0 < demo.took_s < LIMIT_S * PATIENCE


def test_demo_keeps_only_its_report_when_the_temporary_directory_is_a_symbolic_link(tmp_path, monkeypatch):
    def show(demo, seconds):
        demo.output.mkdir()
        (demo.output / "report.html").touch()
        (demo.directory / "cluster").mkdir()

    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "link"))
    monkeypatch.setattr(Demo, "show", show)
    assert demo_spark.run(Namespace(output=None, keep=False, seconds=1)) == 0
    [directory] = (tmp_path / "real").iterdir()
    assert [str(path.relative_to(directory)) for path in directory.rglob("*")] == ["output", "output/report.html"]
