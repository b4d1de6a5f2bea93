"""HTTP: metrics, health and state, for whoever watches; reviews of pods, for the API server."""
