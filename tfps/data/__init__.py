"""Datasets: rows and TFRecords, shards with their manifest and index, batches of records."""
