"""The outside world: databases, queues, providers, files."""
