"""What a model has learnt, as figures that a notebook draws."""
