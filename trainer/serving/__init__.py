"""An exported model behind HTTP, to be tried out: TensorFlow Serving's REST API, and a form."""
