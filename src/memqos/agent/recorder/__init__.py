"""The flight recorder: what happened to each container, kept small and whole."""
