"""Ready-made pipelines over the tables of `kafkacore-log`. They are functions from DataFrames to DataFrames."""
