"""A program on Spark Connect: `connect_program.py BOOTSTRAP LOG_DIR TOPIC DIRECTORY`. It starts a local server, uses
both formats through it, and prints what it found as one line of JSON."""

import json
import sys

from spark_session import prepare_environment


def main(bootstrap, log_dir, topic, directory):
    prepare_environment()
    from pyspark.sql import SparkSession

    from kafkacore.spark.helpers import confluent_payload, lag
    from kafkacore.spark.pipelines.controller_report import broker_events

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    servers = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(100).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    rows.write.format("kafkacore").mode("append").options(topic=topic, **servers).save()

    read = spark.read.format("kafkacore").options(subscribe=topic, **servers).load()
    records = (
        spark.readStream.format("kafkacore").options(subscribe=topic, startingOffsets="earliest", **servers).load()
    )
    query = (
        records.writeStream.format("memory").queryName("streamed").option("checkpointLocation", directory)
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    metadata = spark.read.format("kafkacore-log").option("path", log_dir).option("table", "metadata").load()
    found = {
        "session": type(spark).__module__,
        "values": sorted(int(row.value) for row in read.select("value").collect()),
        "streamed": spark.table("streamed").count(),
        "lag": sum(lag(query.lastProgress).values()),
        "payloads": read.select(confluent_payload("value").alias("payload")).where("payload is not null").count(),
        "events": [row.event for row in broker_events(metadata).orderBy("offset").collect()],
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
