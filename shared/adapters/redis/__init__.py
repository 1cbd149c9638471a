"""Clients of Redis: announcements, shared counts and the queue of jobs.

Nothing in Redis is authoritative; it may disappear at any moment. Begin with `announcer`.
"""
