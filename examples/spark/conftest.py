"""A local Spark session with the jar that reads Avro. The format `kafkacore` itself needs no jar."""

import os
import sys

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    session = builder.config("spark.jars.packages", "org.apache.spark:spark-avro_2.13:4.2.0").getOrCreate()
    yield session
    session.stop()
