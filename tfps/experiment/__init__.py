"""What a config says: task, data, training, mode."""
