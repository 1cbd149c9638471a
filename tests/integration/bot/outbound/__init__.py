"""The way out of the Telegram channel, against the fake Bot API and the real Postgres."""
