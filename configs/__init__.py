"""One experiment per file."""
