"""The flight recorder's format and the story its records tell. Pure: `why` needs no agent."""
