"""SavedModels that need nothing of tfps."""
