"""Files in JOB_DIR by which the tasks of a job communicate."""
