"""A node's reports about itself: metrics under Kafka's names, their Prometheus exposition, the request log."""
