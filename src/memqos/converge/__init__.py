"""Observe a node, plan it, write the plan, take it back."""
