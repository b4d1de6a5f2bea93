"""What is wrong with a node, what to know about it, and what to do.

Charter: pure rules that judge facts. Each is a small function from `Facts` to findings, and every
finding carries its evidence and a fix. What was observed, and when, arrives as a value.
"""
