"""Rolls logs. Native code only."""
