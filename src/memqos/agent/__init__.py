"""The agent: keeps a node as planned while pods come and go, and tells how it does."""
