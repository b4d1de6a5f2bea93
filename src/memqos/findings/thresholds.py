"""From where on the audit thinks something worth telling."""

from typing import Final

BIG: Final = 256 << 20
"""Bytes below which nobody minds what is given away."""
FAR_ABOVE: Final = 4
"""A limit so many times what is in use protects nobody from anything."""
IDLE: Final = 4
"""A request so many times what is in use keeps others out."""
TOGETHER: Final = 64 << 20
"""Bytes that containers which peak at different times could share."""
TOGETHER_SHARE: Final = 0.2
NOTHING_LEFT: Final = 0.9
"""Of a node's memory: with so much never reclaimed, the rest is killed instead."""
FULL: Final = 0.95
"""Of what a node offers to pods, in use."""
LIMITS: Final = 2.0
"""Limits together, beside what a node offers to pods."""
UNASKED: Final = 0.05
"""Of a node's memory, protected for pods that never asked."""
HEADROOM: Final = 0.1
"""Of a quota, left."""
