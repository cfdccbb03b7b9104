"""The packaged trainer: what every task of a job runs."""
