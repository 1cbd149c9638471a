"""How well the past is found again, and how fast, on a real Postgres."""
