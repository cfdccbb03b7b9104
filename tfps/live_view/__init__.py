"""The progress of a run, drawn in a terminal."""
