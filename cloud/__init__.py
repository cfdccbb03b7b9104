"""Jobs as data, and the platforms that run them; no TensorFlow is loaded."""
