"""A whole cluster: every pod counted in a census, added up to totals, judged by rules. Pure."""
