"""What runs in a closure: a step, and the loops that make one after the other."""
