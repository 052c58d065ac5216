"""The driver of a stream that copies a topic to another topic of the same broker, at least once. A test kills it.

Usage: copying_query.py BOOTSTRAP SOURCE TARGET DIRECTORY. The value of each copy is the partition and the offset of its
record in the source. A task that fails is tried again, and so is a query.
"""

import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException

from spark_session import start


def main():
    bootstrap, source, target, directory = sys.argv[1:]
    (Path(directory) / "spark").mkdir(exist_ok=True)
    spark = start(Path(directory) / "spark", cores="2,4", memory="512m")
    brokers = {"kafka.bootstrap.servers": bootstrap}
    records = (
        spark.readStream.format("kafkacore").options(**brokers, subscribe=source, startingOffsets="earliest")
        .option("minPartitions", "4").load()
        .selectExpr("concat(partition, ':', offset) as value")
    )  # fmt: skip
    while True:
        query = (
            records.writeStream.format("kafkacore").options(**brokers, topic=target)
            .option("checkpointLocation", f"{directory}/checkpoint").start()
        )  # fmt: skip
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print(f"the query starts again after: {error}", flush=True)


if __name__ == "__main__":
    main()
