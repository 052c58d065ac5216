"""Jobs of logs on pool threads; native only."""
