"""The experiments, a module each; `catalogue` has them all."""
