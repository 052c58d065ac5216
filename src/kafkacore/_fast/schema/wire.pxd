"""The hot messages as C structs, and their programs: Produce 3-13, Fetch 4-18, ListOffsets 1-11, Heartbeat 0-4,
SyncGroup 0-5, request headers 1-2.

The structs are the tables' structs under their own names, all versions together; comments say since when a field is
there. `<message>_program(version)` is NULL for a version that is not bound. Programs are made when this module is
imported and never change.

To write a response, give every field its value or its default: a struct filled with zeros has offsets and epochs of 0,
not -1. `view_default(program, &struct)` fills the outermost struct.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.schema.schema cimport Array, Slice
from kafkacore._fast.schema.view cimport Program

ctypedef struct RequestHeader:
    int16_t request_api_key
    int16_t request_api_version
    int32_t correlation_id
    Slice client_id                     # may be null

ctypedef struct PartitionProduceData:
    int32_t index
    Slice records                       # may be null

ctypedef struct TopicProduceData:
    Slice name                          # 3-12
    uint8_t topic_id[16]                # 13+
    Array partition_data                # of PartitionProduceData

ctypedef struct ProduceRequest:
    Slice transactional_id              # may be null
    int16_t acks
    int32_t timeout_ms
    Array topic_data                    # of TopicProduceData

ctypedef struct BatchIndexAndErrorMessage:
    int32_t batch_index                 # 8+
    Slice batch_index_error_message     # 8+, may be null

ctypedef struct LeaderIdAndEpoch:
    int32_t leader_id                   # 10+, default -1
    int32_t leader_epoch                # 10+, default -1

ctypedef struct PartitionProduceResponse:
    int32_t index
    int16_t error_code
    int64_t base_offset
    int64_t log_append_time_ms          # default -1
    int64_t log_start_offset            # 5+, default -1
    Array record_errors                 # 8+, of BatchIndexAndErrorMessage
    Slice error_message                 # 8+, may be null
    LeaderIdAndEpoch current_leader     # 10+ tagged

ctypedef struct TopicProduceResponse:
    Slice name                          # 3-12
    uint8_t topic_id[16]                # 13+
    Array partition_responses           # of PartitionProduceResponse

ctypedef struct NodeEndpoint:
    int32_t node_id                     # 10+
    Slice host                          # 10+
    int32_t port                        # 10+
    Slice rack                          # 10+, may be null

ctypedef struct ProduceResponse:
    Array responses                     # of TopicProduceResponse
    int32_t throttle_time_ms
    Array node_endpoints                # 10+ tagged, of NodeEndpoint

ctypedef struct ReplicaState:
    int32_t replica_id                  # 15+, default -1
    int64_t replica_epoch               # 15+, default -1

ctypedef struct FetchPartition:
    int32_t partition
    int32_t current_leader_epoch        # 9+, default -1
    int64_t fetch_offset
    int32_t last_fetched_epoch          # 12+, default -1
    int64_t log_start_offset            # 5+, default -1
    int32_t partition_max_bytes
    uint8_t replica_directory_id[16]    # 17+ tagged
    int64_t high_watermark              # 18+ tagged, default 9223372036854775807

ctypedef struct FetchTopic:
    Slice topic                         # 4-12
    uint8_t topic_id[16]                # 13+
    Array partitions                    # of FetchPartition

ctypedef struct ForgottenTopic:
    Slice topic                         # 7-12
    uint8_t topic_id[16]                # 13+
    Array partitions                    # 7+, of int32_t

ctypedef struct FetchRequest:
    Slice cluster_id                    # 12+ tagged, may be null
    int32_t replica_id                  # 4-14, default -1
    ReplicaState replica_state          # 15+ tagged
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes                   # default 2147483647
    int8_t isolation_level
    int32_t session_id                  # 7+
    int32_t session_epoch               # 7+, default -1
    Array topics                        # of FetchTopic
    Array forgotten_topics_data         # 7+, of ForgottenTopic
    Slice rack_id                       # 11+

ctypedef struct EpochEndOffset:
    int32_t epoch                       # 12+, default -1
    int64_t end_offset                  # 12+, default -1

ctypedef struct SnapshotId:
    int64_t end_offset                  # default -1
    int32_t epoch                       # default -1

ctypedef struct AbortedTransaction:
    int64_t producer_id
    int64_t first_offset

ctypedef struct PartitionData:
    int32_t partition_index
    int16_t error_code
    int64_t high_watermark
    int64_t last_stable_offset          # default -1
    int64_t log_start_offset            # 5+, default -1
    EpochEndOffset diverging_epoch      # 12+ tagged
    LeaderIdAndEpoch current_leader     # 12+ tagged
    SnapshotId snapshot_id              # 12+ tagged
    Array aborted_transactions          # of AbortedTransaction, may be null
    int32_t preferred_read_replica      # 11+, default -1
    Slice records                       # may be null

ctypedef struct FetchableTopicResponse:
    Slice topic                         # 4-12
    uint8_t topic_id[16]                # 13+
    Array partitions                    # of PartitionData

ctypedef struct FetchResponse:
    int32_t throttle_time_ms
    int16_t error_code                  # 7+
    int32_t session_id                  # 7+
    Array responses                     # of FetchableTopicResponse
    Array node_endpoints                # 16+ tagged, of NodeEndpoint

ctypedef struct ListOffsetsPartition:
    int32_t partition_index
    int32_t current_leader_epoch        # 4+, default -1
    int64_t timestamp

ctypedef struct ListOffsetsTopic:
    Slice name
    Array partitions                    # of ListOffsetsPartition

ctypedef struct ListOffsetsRequest:
    int32_t replica_id
    int8_t isolation_level              # 2+
    Array topics                        # of ListOffsetsTopic
    int32_t timeout_ms                  # 10+

ctypedef struct ListOffsetsPartitionResponse:
    int32_t partition_index
    int16_t error_code
    int64_t timestamp                   # default -1
    int64_t offset                      # default -1
    int32_t leader_epoch                # 4+, default -1

ctypedef struct ListOffsetsTopicResponse:
    Slice name
    Array partitions                    # of ListOffsetsPartitionResponse

ctypedef struct ListOffsetsResponse:
    int32_t throttle_time_ms            # 2+
    Array topics                        # of ListOffsetsTopicResponse
ctypedef struct HeartbeatRequest:
    Slice group_id
    int32_t generation_id
    Slice member_id
    Slice group_instance_id             # 3+, may be null

ctypedef struct HeartbeatResponse:
    int32_t throttle_time_ms            # 1+
    int16_t error_code

ctypedef struct SyncGroupRequestAssignment:
    Slice member_id
    Slice assignment

ctypedef struct SyncGroupRequest:
    Slice group_id
    int32_t generation_id
    Slice member_id
    Slice group_instance_id             # 3+, may be null
    Slice protocol_type                 # 5+, may be null
    Slice protocol_name                 # 5+, may be null
    Array assignments                   # of SyncGroupRequestAssignment

ctypedef struct SyncGroupResponse:
    int32_t throttle_time_ms            # 1+
    int16_t error_code
    Slice protocol_type                 # 5+, may be null
    Slice protocol_name                 # 5+, may be null
    Slice assignment

cdef const Program *request_header_program(int version) noexcept nogil
cdef const Program *produce_request_program(int version) noexcept nogil
cdef const Program *produce_response_program(int version) noexcept nogil
cdef const Program *fetch_request_program(int version) noexcept nogil
cdef const Program *fetch_response_program(int version) noexcept nogil
cdef const Program *list_offsets_request_program(int version) noexcept nogil
cdef const Program *list_offsets_response_program(int version) noexcept nogil
cdef const Program *heartbeat_request_program(int version) noexcept nogil
cdef const Program *heartbeat_response_program(int version) noexcept nogil
cdef const Program *sync_group_request_program(int version) noexcept nogil
cdef const Program *sync_group_response_program(int version) noexcept nogil

# The header of a request's frame. The body's offset in the frame, or -1 for an unknown API or a header that does not
# fit (Kafka closes such a connection). Version 0 headers, which only ControlledShutdown 0 has, have a null client id.
cdef int32_t read_request_header(const uint8_t *frame, size_t size, RequestHeader *out) noexcept nogil
# Whether a response starts with tagged fields (header version 1). ApiVersions' never does.
cdef bint response_has_tags(int16_t api_key, int16_t version) noexcept nogil
