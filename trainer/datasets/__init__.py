"""Files with rows or records, read by several processes."""
