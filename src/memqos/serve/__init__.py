"""HTTP: metrics, health and state, for whoever watches."""
