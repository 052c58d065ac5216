"""Jobs of logs on pool threads. Native code only."""
