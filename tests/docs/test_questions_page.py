"""The reference page of the questions is what the registry makes of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from make_questions_page import make_reference_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "questions.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == make_reference_page()


def test_the_command_on_the_page_makes_it():
    tool = PAGE.parent.parent / "tools" / "make_questions_page.py"
    done = subprocess.run([sys.executable, tool], capture_output=True, check=True)
    assert done.stdout.decode("utf-8") == make_reference_page()
