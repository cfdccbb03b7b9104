"""Models on Vertex AI: versions, endpoints and their traffic, batch predictions."""
