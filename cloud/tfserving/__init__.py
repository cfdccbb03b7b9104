"""TensorFlow Serving: what it is told of models, and how it is started."""
