"""A Google Cloud Storage of one machine, for tests and benchmarks: see `LocalCloud`."""
