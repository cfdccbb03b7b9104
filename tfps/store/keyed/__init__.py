"""Tables without a vocabulary on the ps: rows that are found by their keys."""
