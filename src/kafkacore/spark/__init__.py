"""PySpark with Kafka: the data source `kafkacore`, its helper functions and its pipelines (docs/spark.md).

Once `kafkacore[spark]` is installed, Spark finds the format without further configuration. `import kafkacore.spark`
loads neither PySpark nor PyArrow.
"""
