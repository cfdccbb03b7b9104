"""Searches for better settings: trials that are jobs, proposed by Optuna."""
