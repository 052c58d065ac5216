"""PySpark with Kafka: the data source `kafkacore`, its helper functions and its pipelines (docs/spark.md).

After `kafkacore[spark]` is installed, Spark finds the format by itself. `import kafkacore.spark` loads neither PySpark
nor PyArrow.
"""
