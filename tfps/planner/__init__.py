"""Where parameters land, what they cost, and how fast a cluster is expected to be."""
