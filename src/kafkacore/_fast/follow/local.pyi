"""The work of a fetcher on the logs of this broker. Native code only."""
