"""Machines without a scheduler, reached with OpenSSH's client."""
