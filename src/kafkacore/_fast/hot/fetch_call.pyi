# This module has no Python interface. kafkacore._fast.hot.fetch uses it.
