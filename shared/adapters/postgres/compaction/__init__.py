"""Stores of jobs, compactions and flushes.

A job is claimed under a lease; a compaction is committed only if the session's view is unchanged. Begin with
`jobs.PostgresJobs`.
"""
