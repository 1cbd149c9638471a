"""Routers of one bot and their handlers.

`dispatcher` passes them batches of messages and all other updates. Their order: `command_handlers` for
commands, `message_handlers` for other messages, `access_requests` and `button_handlers` for button presses,
`inline_queries` for inline queries, `chat_changes` for membership, migrations, pins, reactions and stopped
drafts. `chat_admission` is the middleware of messages. `quick_actions`, `memory_list` and `search_results`
carry out commands and button presses. Begin with `dispatcher`.
"""
