"""Vertex AI custom training: requests as data, and what sends them."""
