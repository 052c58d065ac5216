# No Python face: a Fetch's parts and answer are driven through kafkacore._fast.hot.fetch.
