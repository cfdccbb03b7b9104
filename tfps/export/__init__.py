"""SavedModels that need nothing of tfps: written, and read again."""
