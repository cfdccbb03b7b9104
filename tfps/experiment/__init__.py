"""What a config says: the task, the data, the training, the mode, a search for settings."""
