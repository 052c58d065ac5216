"""The foundation of native code: atomics, locks, cursors over bytes, checksums, text. Imports no other package."""
