"""TensorFlow Serving: its settings for models, and how it is started."""
