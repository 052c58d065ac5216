"""Messages of old releases. Native code only."""
