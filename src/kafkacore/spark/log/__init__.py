"""The data source `kafkacore-log`, which shows the files in log directories as tables, without a broker."""
