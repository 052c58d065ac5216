"""Shows the files of a node to people and scripts: `kafkacore dump-log` and `kafkacore storage info`."""
