"""Jobs on Kubernetes, as JobSets or TFJobs."""
