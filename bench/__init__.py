"""Benches: each module measures one thing and reports it as lines of text."""
