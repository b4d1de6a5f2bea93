"""The command: one file a command."""
