"""A fetch session. Python code uses it through `fetch_session`."""
