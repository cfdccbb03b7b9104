"""The parameter store: where parameters live on the ps, how they are pulled and pushed."""
