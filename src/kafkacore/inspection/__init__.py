"""Shows the content of a node's files: `kafkacore dump-log`, `kafkacore metadata-shell` and `kafkacore storage
info`."""
