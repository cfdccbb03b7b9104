"""The chief's loop over leases, and where closures run."""
