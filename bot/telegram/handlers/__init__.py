"""The routers of one bot and their handlers.

`dispatcher` feeds them: a batch of messages, or any other update. In their order: `command_handlers` has
commands, `message_handlers` what people say, `access_requests` and `button_handlers` presses,
`inline_queries` what is asked from other chats, `chat_changes` the bot's standing, migrations, pins,
reactions and stopped drafts. `chat_admission` stands before messages. `quick_actions`, `memory_list` and
`search_results` serve commands and buttons. Begin with `dispatcher`.
"""
