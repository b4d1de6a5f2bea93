"""The outside world, one file a client."""
