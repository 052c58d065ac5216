"""Invariants of a cluster, checked from plain observations by code that shares nothing with the code under test."""
