"""A strict stand-in for services that have OpenAI's `/v1/audio/speech`, as a process of its own."""
