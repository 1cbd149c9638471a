"""Stores of jobs, compactions and flushes.

A job is claimed under a lease, a compaction is committed by compare-and-set. Begin with `jobs.PostgresJobs`.
"""
