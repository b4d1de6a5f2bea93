"""A node at an instant: a row a container, its ranks, recent actions. Pure: no files, no clock."""
