"""One fetch session; `fetch_session` is what Python calls."""
