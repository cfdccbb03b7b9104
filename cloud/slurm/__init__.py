"""Jobs on Slurm, as batch scripts."""
