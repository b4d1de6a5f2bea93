"""Programs with the memory habits of real ones: run by path, importing nothing of memqos."""
