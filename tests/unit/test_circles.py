from __future__ import annotations

import pytest
from circles import find_circles, main

MODULES = {
    "__init__": "",
    "types": "import typing\nif typing.TYPE_CHECKING:\n    from sample import upper\n",
    "lower": "def run():\n    from sample.upper import run\n",
    "middle": "import sample.lower\nimport sample.types\n",
    "upper": "from sample import middle\n\ndef run():\n    from sample import types\n",
    "top": "from sample import upper\n",
}


@pytest.fixture
def sample(tmp_path, monkeypatch):
    (tmp_path / "sample").mkdir()
    for name, text in MODULES.items():
        (tmp_path / "sample" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return "sample"


def test_imports_inside_functions_close_a_circle_and_type_imports_do_not(sample):
    assert list(find_circles(sample)) == [["lower", "middle", "upper"]]


def test_the_product_has_no_circles(capsys):
    assert main() == 0, capsys.readouterr().out
