"""A market and a table of patients: sellers, others who sell nothing, and others who never came."""

from __future__ import annotations

from pathlib import Path

SELLERS = 60
PATIENTS = 66
#: A name that a spreadsheet would take for a formula.
ODD_NAME = "=p003"
SCHEMA = """\
label = "ill"
person = "patient"
[columns.age]
kind = "number"
low = 0
high = 100
[columns.ill]
kind = "factor"
levels = ["no", "yes"]
"""
#: The same table with a label that is a number.
COST_SCHEMA = """\
label = "cost"
person = "patient"
[columns.age]
kind = "number"
low = 0
high = 100
[columns.cost]
kind = "number"
low = 0
high = 10
"""


def name_person(number: int) -> str:
    if number == 3:
        return ODD_NAME
    return f"p{number:03d}"


def write_sellers() -> str:
    """Costs between 1 and 5, and one above all prices."""
    costs = [9.0 if i == 7 else 1 + 37 * i % 41 / 10.25 for i in range(SELLERS)]
    return "seller,cost\n" + "".join(
        f"{name_person(i)},{cost:.4f}\n" for i, cost in enumerate(costs)
    )


def write_patients() -> str:
    lines = ["patient,age,cost,ill"]
    for i in range(2 * PATIENTS):
        age = 20 + 13 * i % 60
        lines.append(f"{name_person(i % PATIENTS)},{age},{age / 10},{'yes' if age > 50 else 'no'}")
    return "\n".join(lines) + "\n"


def write_files(folder: Path) -> dict[str, Path]:
    """Writes all files, and returns where they are by name."""
    content = {
        "sellers.csv": write_sellers(),
        "patients.csv": write_patients(),
        "schema.toml": SCHEMA,
        "cost.toml": COST_SCHEMA,
    }
    for name, text in content.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {name: folder / name for name in content}
