"""How hypothesis searches: the same examples every time, unless asked to explore.

`pytest --hypothesis-profile=explore` looks at new examples on every run, and at more of them.
"""

from hypothesis import HealthCheck, settings

# No example fails for taking long, and no strategy for being slow on a machine that is busy.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", settings.get_profile("ci"), derandomize=False, max_examples=1000
)
settings.load_profile("ci")
