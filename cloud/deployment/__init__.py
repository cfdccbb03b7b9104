"""Exported models behind an address: what is deployed, and the requests to a platform."""
