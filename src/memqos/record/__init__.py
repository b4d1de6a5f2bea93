"""The flight recorder's format, and the stories its records add up to. Pure: no agent is needed."""
