"""Models on Vertex AI: versions and endpoints with their traffic."""
