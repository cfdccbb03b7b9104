"""Workers that wait for each other: synchronous rounds, bounded staleness."""
