"""Counts the records and requests that a partition receives, and the bytes that it sends, for the metrics of Kafka's
BrokerTopicMetrics.

Each partition has its own counts, so processors (the threads that serve connections) contend for them no more than for
the partition's log. Appends are counted under `Log.lock`, which an append holds anyway. Responses are counted in atomic
fields, without the lock. When metrics are read, the module traffic_counts adds up the counts of each topic.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.record.validate cimport ValidateResult

# Each field is named after its metric.
ctypedef struct Traffic:
    int64_t produces            # `Log.lock` guards the fields up to `fetches`
    int64_t failed_produces
    int64_t messages_in
    int64_t bytes_in
    int64_t bytes_rejected
    int64_t conversions         # the records of batches that were compressed again
    int64_t no_key              # this field and the next three count rejected batches, by the reason
    int64_t bad_magic
    int64_t bad_checksum
    int64_t bad_offsets
    int64_t replication_in
    int64_t reassignment_in
    int64_t fetches
    int64_t failed_fetches      # atomic, like the fields below
    int64_t bytes_out
    int64_t replication_out
    int64_t reassignment_out

# Call this with the lock held, when a Produce or an append of a coordinator has ended with `error`.
cdef void traffic_produced(Traffic *traffic, int error, int64_t size_bytes, int64_t messages,
                           const ValidateResult *validated) noexcept nogil
# Call this without the lock, when a Fetch has failed with `error`.
cdef void traffic_failed(Traffic *traffic, int error) noexcept nogil
# Call this without the lock, when a response sends bytes of records to a client or to a follower. `to_added` says that
# a reassignment is adding this follower.
cdef void traffic_sent(Traffic *traffic, int64_t size_bytes, bint to_follower, bint to_added) noexcept nogil
