"""A node's reports about itself: metrics under Kafka's names, a Prometheus endpoint for them, and the request log."""
