"""A Keras model as functions of parameters that lie elsewhere."""
