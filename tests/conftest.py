"""How hypothesis searches: the same examples every time, unless asked to explore.

`pytest --hypothesis-profile=explore` looks at new examples on every run, and at more of them.
"""

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("ci")
