"""The state that the hot APIs of a node share, and the tables that the node publishes to them."""

cimport cython

from kafkacore._fast.base.atomics cimport load64
from kafkacore._fast.hot.endpoints cimport EndpointTable
from kafkacore._fast.log.partition_table cimport Table
from kafkacore._fast.log.replication_quota cimport ReplicationQuota
from kafkacore._fast.plane.plane cimport NativePlane


@cython.no_gc  # no reference cycle contains it, and the collector must not clear fields that threads still use
cdef class HotState:

    def __cinit__(self, FetchSessionCache sessions not None, int fetch_max_bytes=57671680, int node_id=-1,
                  bint selects_by_rack=False, ReplicationQuota leader_quota=None):
        self.sessions = sessions
        self.state.fetch_max_bytes = fetch_max_bytes
        self.state.node_id = node_id
        self.state.selects_by_rack = selects_by_rack
        self.state.sessions = &sessions.cache
        self.leader_quota = leader_quota
        if leader_quota is not None:
            self.state.leader_quota = &leader_quota.quota

    def purgatories(self) -> dict[str, tuple[int, int]]:
        """Returns the numbers of waiting Produce and Fetch requests, each with the number of partitions that they
        watch. Any thread may call this method."""
        return {
            "Produce": purgatory_counts(&self.state.produce_purgatory),
            "Fetch": purgatory_counts(&self.state.fetch_purgatory),
        }

    def publish_endpoints(self, NativePlane plane not None, endpoints) -> None:
        """Gives the plane's processors a new table of endpoints. `endpoints` has a tuple (number of the listener, node
        id, host, port, rack or None) for each broker and each of the plane's listeners. The plane frees the old table
        when no processor can be reading it."""
        cdef EndpointTable table = EndpointTable(endpoints)
        plane.publish("endpoints", <void **> &self.state.endpoints, table.all, table)


cdef tuple purgatory_counts(const Purgatory *purgatory):
    return load64(&purgatory.operations), load64(&purgatory.watched)


def publish_table(NativePlane plane not None, Table table not None) -> None:
    """Gives the plane's processors a new partition table, in which Produce and Fetch find their partitions."""
    plane.publish_table(table.table, table)
