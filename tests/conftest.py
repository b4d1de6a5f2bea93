"""How hypothesis searches: the same examples every time, unless asked to explore. And no width.

`pytest --hypothesis-profile=explore` looks at new examples on every run, and at more of them.
"""

import gc
import os
import signal

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

# pytest-xdist sets it for its workers; what is not about the width of a terminal has none.
os.environ.pop("COLUMNS", None)
# GNU readline, which pdb imports, sets it where os.environ does not see it and child processes do.
os.unsetenv("COLUMNS")

# A shell has the jobs that it runs in the background ignore interrupts, and those what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Take thousands of tests out of the garbage collector's sight.

    They stay to the end. Looked at again and again they slow all tests down, and most of all those
    that fork: a process that looks at them gets a copy of its own of each page.
    """
    gc.collect()
    gc.freeze()
