"""What the chief does: it trains, evaluates, saves, and recovers what is lost."""
