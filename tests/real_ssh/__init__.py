"""Machines on this one that a real OpenSSH reaches, for `make ssh`."""
