"""Jobs on Kubernetes, as JobSets, TrainJobs or TFJobs."""
