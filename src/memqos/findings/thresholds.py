"""From where on the audit thinks something worth telling."""

from typing import Final

LARGE_AMOUNT: Final = 256 << 20
"""Bytes below which nobody minds what is given away."""
HIGH_LIMIT_FACTOR: Final = 4
"""A limit so many times what is in use protects nobody from anything."""
IDLE_REQUEST_FACTOR: Final = 4
"""A request so many times what is in use keeps others out."""
POD_LEVEL_SAVING: Final = 64 << 20
"""Bytes that containers which peak at different times could share."""
POD_LEVEL_SAVING_SHARE: Final = 0.2
HARD_PROTECTION_SHARE: Final = 0.9
"""Of a node's memory: with so much never reclaimed, the rest is killed instead."""
FULL_NODE_SHARE: Final = 0.95
"""Of what a node offers to pods, in use."""
LIMITS_FACTOR: Final = 2.0
"""Limits together, beside what a node offers to pods."""
UNREQUESTED_SHARE: Final = 0.05
"""Of a node's memory, protected for pods that never asked."""
QUOTA_HEADROOM_SHARE: Final = 0.1
"""Of a quota, left."""
