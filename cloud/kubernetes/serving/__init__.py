"""Exported models on Kubernetes, behind TensorFlow Serving."""
