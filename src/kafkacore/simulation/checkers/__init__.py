"""Checks the invariants of a cluster from plain observations, with code that shares nothing with the code under
test."""
