"""The launcher: every task of a cluster as a process of this machine."""
