"""A child process beside other threads: its answer, its end, and no warning."""

import subprocess
import sys
import time
from typing import Final

from memqos.host.bounded_child import run_bounded

BESIDE_A_THREAD: Final = """
import threading
from memqos.host.bounded_child import run_bounded
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
try:
    print(run_bounded(lambda: b"done", 30.0))
finally:
    stop.set()
    thread.join()
"""


def test_an_answer_comes_back() -> None:
    assert run_bounded(lambda: b"done", 30.0) == b"done"


def test_an_action_that_blocks_is_stopped() -> None:
    def block() -> bytes:
        time.sleep(3600)
        return b"late"

    assert run_bounded(block, 0.01) is None


def test_an_action_that_fails_has_no_answer() -> None:
    assert run_bounded(lambda: b"%d" % (1 // 0), 30.0) is None


def test_a_child_beside_a_thread_is_no_reason_to_warn() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BESIDE_A_THREAD],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("b'done'\n", "")
