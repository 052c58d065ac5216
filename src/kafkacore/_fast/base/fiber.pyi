"""Fibers, which only native code can use."""
