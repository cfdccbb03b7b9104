"""Experiments, and searches for better settings."""
