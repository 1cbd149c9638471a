"""Vectors of what texts mean, by a model in a separate process on this machine.

`process` holds the model and answers on a unix socket; `client` asks it. Begin with `process`.
"""
