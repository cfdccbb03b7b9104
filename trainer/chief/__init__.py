"""The chief: trains, evaluates, saves, and recovers lost tasks."""
