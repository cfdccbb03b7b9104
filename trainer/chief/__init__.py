"""What the chief does: it trains, evaluates, saves, and mends what is lost."""
