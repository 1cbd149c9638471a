"""Talks to the Bot API.

`sender` sends every call: `calls` decides when a call may go and classifies its outcome, above all whether it
is safe to try again. `aiogram_loader` loads aiogram late and small. Begin with `sender`.
"""
