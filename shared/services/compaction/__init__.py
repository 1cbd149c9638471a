"""Background jobs that keep a session within its context window.

`job_runner` claims a job and ends it; `compactor` plans, flushes, writes and commits a summary; `flusher`
saves memory in silent turns, which `flush_requests` builds; `checkpoints` prepares summaries early and
upgrades digests. Begin with `job_runner`.
"""
