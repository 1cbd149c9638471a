"""A strict fake of services that offer OpenAI's `/v1/audio/speech`, run as a process."""
