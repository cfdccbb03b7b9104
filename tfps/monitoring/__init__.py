"""Records what happens in a run: its history, TensorBoard's curves, Prometheus."""
