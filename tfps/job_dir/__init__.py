"""What the tasks of a job tell each other by files in JOB_DIR."""
