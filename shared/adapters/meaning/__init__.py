"""Vectors of what texts mean, by a model that runs in a process of its own on this machine.

`process` holds the model and answers on a unix socket; `client` asks it. Begin with `process`.
"""
