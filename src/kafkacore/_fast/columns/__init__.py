"""Converts records to Arrow columns and back, without a Python object for each record and without the GIL."""
