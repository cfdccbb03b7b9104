"""What happens in a run, and who is told of it: its history, TensorBoard's curves, Prometheus."""
