"""Background jobs that keep a session within its context window.

`job_runner` claims a job and ends it; `compactor` plans, flushes and commits what `summarizer` writes;
`flusher` saves memory in silent turns; `checkpoints` prepares summaries early and upgrades digests. What
they send to models is built by `silent_requests`. Begin with `job_runner`.
"""
