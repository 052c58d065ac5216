from kafkacore._fast.record.batch_scan import BatchScan

class RecordScan(BatchScan):
    """Like BatchScan; the `fault` of its rows covers the records of a batch, too."""
