"""Lines for a terminal, and plain data for `-o json` and `-o yaml`."""
