"""Writes the dashboards: ``python -m deploy.grafana``, in the project's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deploy.grafana.dashboards import files

FOLDER: Final = Path(__file__).parents[1] / "components" / "monitoring" / "dashboards"

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, content in files().items():
        (FOLDER / file).write_text(content)
