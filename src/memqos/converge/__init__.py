"""Observe a node, plan it, write the plan, restore."""
