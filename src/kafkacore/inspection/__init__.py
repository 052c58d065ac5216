"""What lies in a node's files, told to people and to scripts: `kafkacore dump-log` and `storage info`."""
