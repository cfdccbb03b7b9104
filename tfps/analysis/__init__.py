"""Records and predictions of a trained model, for notebooks."""
