"""Rolls of logs; native only."""
