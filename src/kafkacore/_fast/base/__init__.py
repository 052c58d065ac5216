"""The foundation of the native code: atomics, locks, cursors over bytes, checksums and text. This package imports no
other package.
"""
