"""What the chief does: it trains, evaluates, saves, and repairs what is lost."""
