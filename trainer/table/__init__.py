"""What a table's columns hold, and a config that learns from them."""
