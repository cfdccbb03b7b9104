"""The launcher of one of N equal machines, and how they meet."""
