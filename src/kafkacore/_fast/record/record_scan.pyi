from kafkacore._fast.record.batch_scan import BatchScan

class RecordScan(BatchScan):
    """Like BatchScan, but the `fault` of a batch covers its records, too."""
