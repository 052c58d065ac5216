"""The group commit of logs. Native code only."""
