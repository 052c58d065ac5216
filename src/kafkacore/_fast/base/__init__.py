"""What everything stands on: atomics, locks, cursors over bytes, checksums, text. Imports no other package."""
