"""Talks to the Bot API.

`sender` is the only way out: `call_queue` decides when a call may go, `outcomes` says
what became of it, above all whether it is safe to try again. `aiogram_loader` loads aiogram late and
small. Begin with `sender`.
"""
