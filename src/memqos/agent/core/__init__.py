"""The core of an agent: without clock, files or threads, so that tests can hold it in any state."""
