"""Exported models behind an address: what is deployed, and what a platform is asked for."""
