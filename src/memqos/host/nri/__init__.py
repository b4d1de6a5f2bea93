"""The plugin side of the Node Resource Interface: mux, ttrpc, messages, and one connection."""
