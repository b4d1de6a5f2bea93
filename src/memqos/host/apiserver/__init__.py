"""A client of the Kubernetes API server: credentials, requests, lists, watches and Events.

Synchronous throughout. A command lists and ends; a watch runs in a thread of its own, which sleeps
in the kernel nearly all the time and notifies an asyncio loop through a callback.
"""
