"""What every process needs while it runs: background tasks, tracing, garbage collection, crash points. It
stands below services and adapters, which both use it, and knows neither settings nor any subject of the
program. Begin with `tasks`: no task of a process runs without its owner.
"""
