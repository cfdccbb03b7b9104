"""Where parameters land and what they cost, before a run."""
