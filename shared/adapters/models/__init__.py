"""Models: the Messages API in its dialects, the offline demo, and the choice between them.

Begin with `routing.Models`.
"""

from __future__ import annotations

from shared.adapters.models.catalog import ModelEntry, ModelsFileBroken, read_entries
from shared.adapters.models.model_lists import LocalServer, find_local_servers, list_models
from shared.adapters.models.routing import Models, open_models
from shared.adapters.models.timeouts import Patience

__all__ = [
    "Models",
    "open_models",
    "ModelEntry",
    "ModelsFileBroken",
    "read_entries",
    "LocalServer",
    "find_local_servers",
    "list_models",
    "Patience",
]
