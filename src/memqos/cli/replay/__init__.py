"""Replays of recorded cases: each module turns cases of some areas into what memqos answers."""
