"""A real Slurm on this machine, for `make slurm`."""
