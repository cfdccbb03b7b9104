"""What was measured on evaluation data, and which checkpoint is the best."""
