"""The tasks of a job on N equal machines, each of which knows which one it is."""
