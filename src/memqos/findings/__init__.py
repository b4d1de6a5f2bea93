"""Problems of a node, with evidence and fixes, and the admission policy of a platform. Pure.

A rule is a small function from `NodeFacts` to findings; `catalogue` has the text of each. Facts,
and when they were observed, arrive as values.
"""
