"""Which tasks there are, how they are reached, and whether they answer."""
