"""Which records are trained when: their order, leases, and how far those have come."""
