"""Pages as HTML that needs nothing else."""
