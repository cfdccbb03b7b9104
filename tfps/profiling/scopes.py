"""The parts of a step, as the names of its operations show them in a trace."""

PULL, COMPUTE, PUSH = "tfps_pull", "tfps_compute", "tfps_push"
