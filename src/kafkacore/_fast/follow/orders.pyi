"""The orders to a driver. Native code only."""
