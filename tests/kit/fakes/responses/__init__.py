"""A strict fake of OpenAI's Responses API, with the mind, script and journal of `messages_api`."""
