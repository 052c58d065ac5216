"""Runs the test of examples/spark, unchanged, in the Spark session that all tests share. The jar that reads Avro comes
from ci/spark.sh, so nothing is downloaded here."""

import sys

import pytest

pytest.importorskip("pyspark", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

from kafkacore.testing import Broker
from processes import ROOT, need
from spark_session import connector_jars

sys.path.insert(0, str(ROOT / "examples" / "spark"))
from test_payments import test_payments_of_each_user_are_added_up  # noqa: F401


@pytest.fixture(autouse=True)
def avro_jar():
    need([jar for jar in connector_jars() if jar.name.startswith("spark-avro")], "no jar for Avro: ci/spark.sh")


@pytest.fixture
def kafka_broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka_broker):
    kafka_broker.create_topic("payments")
    return "payments"
