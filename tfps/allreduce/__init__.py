"""Training without ps: equal replicas that add up their gradients."""
