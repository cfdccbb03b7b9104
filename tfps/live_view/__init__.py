"""How far a run is, as people follow it in a terminal: what is told of it, and how it is drawn."""
