"""What the tasks of a running job do with their time, from traces by TensorFlow's profiler."""
