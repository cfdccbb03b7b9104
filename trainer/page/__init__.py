"""The page that shows a job: curves, tables and pictures in one file that opens anywhere."""
