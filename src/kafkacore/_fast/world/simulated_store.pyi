"""Files in memory that remember which of their bytes and names would survive a power cut. Python code uses them through
`simulated_disk`."""
