"""Media: speech to text and back, and pictures from descriptions, by servers with OpenAI's API or a local
model. Begin with `media_service`. Recordings are decoded in separate processes only.
"""
