"""HTTP: metrics, health and state for monitoring; reviews of pods for the API server."""
