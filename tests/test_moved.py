"""Old paths of moved modules: each imports, says where it is now, and gives what is there."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.util import find_spec

import pytest

from sottovoce import moved


@pytest.fixture(autouse=True)
def forget():
    """Imports of an old path are remembered by Python, and warn once."""
    yield
    for name in list(sys.modules):
        if name.removeprefix(moved.PACKAGE) in moved.MODULES:
            del sys.modules[name]


@pytest.mark.parametrize("old", moved.MODULES)
def test_an_old_path_leads_to_a_module_that_is_there(old):
    assert old not in moved.MODULES.values()
    found = find_spec(moved.PACKAGE + moved.MODULES[old])
    assert found is not None
    assert found.loader is not moved.MovedModuleFinder


@pytest.mark.filterwarnings("ignore:sottovoce.engines was moved")
@pytest.mark.parametrize("old", ["bounds", "question", "columns", "engine", "engines.arrow"])
def test_an_old_path_imports_and_names_the_new_one(old):
    with pytest.warns(DeprecationWarning, match=f"sottovoce.{old} was moved to") as warned:
        module = importlib.import_module(moved.PACKAGE + old)
    new = importlib.import_module(moved.PACKAGE + moved.MODULES[old])
    assert f"sottovoce.{old} was moved to {new.__name__};" in str(warned[-1].message)
    public = [name for name in vars(new) if not name.startswith("_")]
    assert public
    assert all(getattr(module, name) is getattr(new, name) for name in public)
    with pytest.raises(AttributeError):
        module.nothing  # noqa: B018
    with pytest.raises(AttributeError):
        module.__nothing__  # noqa: B018


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("old", "name"), moved.NAMES)
def test_what_has_another_name_is_found_by_its_old_one(old, name):
    found = getattr(importlib.import_module(moved.PACKAGE + old), name)
    assert found.__name__ == moved.NAMES[old, name]


def test_the_warning_is_shown_at_the_line_that_imports(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nfrom sottovoce.bounds import Schema\nprint(Schema)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "class 'sottovoce.schema.Schema'" in done.stdout
    assert "script.py:2: DeprecationWarning: sottovoce.bounds was moved" in done.stderr


def test_other_paths_are_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sottovoce.nothing")
    assert moved.MovedModuleFinder.find_spec("bounds") is None
