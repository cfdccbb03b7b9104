"""What runs in a closure."""
