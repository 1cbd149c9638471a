"""Builds the import of earlier conversations: the service that stores it, and its runner in the worker."""

from __future__ import annotations

from shared.adapters.past.export_files import ExportFiles
from shared.bootstrap.foundation import Foundation
from shared.services.memory.import_runner import ImportRunner
from shared.services.memory.past_importer import PastImporter
from shared.services.privacy.erasure import ErasureService


def build_past_importer(base: Foundation, erasure: ErasureService) -> PastImporter:
    """Return the service that stores and undoes imports of earlier conversations."""
    return PastImporter(store=base.stores.past_imports, eraser=erasure, crash_point=base.crash_point)


def build_import_runner(base: Foundation, erasure: ErasureService) -> ImportRunner:
    """Return the runner that examines uploaded files and imports them after the person's consent."""
    return ImportRunner(
        base.stores.import_files,
        build_past_importer(base, erasure),
        ExportFiles(clock=base.clock, timezone=base.settings.timezone),
        crash_point=base.crash_point,
    )
