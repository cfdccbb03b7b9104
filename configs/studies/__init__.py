"""Searches for better settings: `--tune=configs/studies/….py`."""
