"""Speech to text, text to speech and pictures, by servers with OpenAI's API or a local model.

Recordings are decoded in separate processes only. Begin with `media_service`.
"""
