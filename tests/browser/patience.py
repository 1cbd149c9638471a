"""How long a test waits for what a page is to show.

Nobody waits so long unless something is wrong: a machine that is busy with other things shall not be.
"""

WAIT_MS = 20_000
"""Below the thirty seconds after which a page of the dashboard looks by itself."""
