"""Orders to a driver. Native code only."""
