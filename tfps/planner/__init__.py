"""What lands where and what it costs, before a task is asked."""
