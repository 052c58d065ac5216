"""The hot APIs, which processors answer without the GIL: Produce, Fetch, ListOffsets, Heartbeat and SyncGroup. This
package also contains the native part of OffsetCommit.
"""
