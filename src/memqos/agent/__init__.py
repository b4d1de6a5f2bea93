"""The agent: keeps a node as planned while pods come and go, and reports how it is doing."""
