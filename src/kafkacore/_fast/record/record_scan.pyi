from kafkacore._fast.record.batch_scan import BatchScan

class RecordScan(BatchScan):
    """As BatchScan; the `fault` of its rows tells what is wrong with the records of a batch, too."""
