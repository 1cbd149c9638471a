"""A strict stand-in for OpenAI's Responses API, with the mind, script and journal of `messages_api`."""
