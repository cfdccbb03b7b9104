"""Google Cloud Storage: what is asked of it beside TensorFlow's own gs:// client."""
