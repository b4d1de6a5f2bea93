"""The Kubernetes API server: who asks, how it is asked, lists, watches and events.

Synchronous throughout. A command lists and is done; a watch runs in a thread of its own, which
sleeps in the kernel nearly all the time and tells an asyncio loop through a callback.
"""
