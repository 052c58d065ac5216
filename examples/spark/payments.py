"""The program under test. It adds up payments, which are Avro records behind the five-byte prefix of Confluent's
serializers.

    spark-submit --packages org.apache.spark:spark-avro_2.13:4.2.0 payments.py localhost:9092 payments
"""

from __future__ import annotations

import sys

from kafkacore.spark.helpers import confluent_payload, confluent_schema_id
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import sum as sum_of

SCHEMA_ID = 7
SCHEMA = """
{"type": "record", "name": "Payment", "fields": [{"name": "user", "type": "string"}, {"name": "cents", "type": "long"}]}
"""


def totals(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Returns the cents that each user has paid. Leaves out records of other schemas."""
    records = (
        spark.read.format("kafkacore")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("columns", "value")
        .load()
    )
    known = records.where(confluent_schema_id() == SCHEMA_ID)
    payments = known.select(from_avro(confluent_payload(), SCHEMA).alias("payment")).select("payment.*")
    return payments.groupBy("user").agg(sum_of("cents").alias("cents"))


if __name__ == "__main__":
    totals(SparkSession.builder.getOrCreate(), *sys.argv[1:]).show()
