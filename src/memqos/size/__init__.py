"""Histories of memory usage: what to request and limit, at which risk, and replays of the past.

Nothing here reads files or clocks: sources of histories are in `memqos.host`.
"""
