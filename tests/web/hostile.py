"""Sends hostile files and forms to the page, in a process of its own, and tells as JSON what came
of them.

python hostile.py FOLDER LIMIT     a folder of bombs; the bytes that a table may have here
"""

from __future__ import annotations

import json
import resource
import sys
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

from starlette.testclient import TestClient

from sottovoce.web import guard
from sottovoce.web.app import make_app
from sottovoce.web.workspace import Workspace

NAMES = (
    *(
        "t.csv",
        "../../../tmp/x.csv",
        "/etc/passwd",
        "..\\..\\x.csv",
        "t.parquet",
        "t.csv.gz",
        "con",
        "a" * 4000,
    ),
    *("%2e%2e%2fx", "x;rm -rf ~.csv", "\u202etxt.csv", "<script>.csv"),
)
GOOD = b"id,epsilon,v\na,1,2\nb,2,3\n"
#: How files begin that are neither CSV nor Parquet, or only seem to be.
MAGIC = (
    *(
        b"PK\x03\x04",
        b"\x1f\x8b\x08",
        b"%PDF-1.7",
        b"\x7fELF",
        b"\x89PNG\r\n",
        b"\xd0\xcf\x11\xe0",
        b"BZh9",
        b"\xfd7zXZ",
    ),
    *(
        b"(\xb5/\xfd",
        b"SQLite format 3\0",
        b"PAR1",
        b"PARE",
        b"PAR1PAR1",
        b"ORC",
        b"Obj\x01",
        b"\xff\xfei\0d\0",
    ),
)
#: Text that is no table: empty, not UTF-8, with NUL, a line without end, columns without number,
#: names of no use.
BROKEN = (
    *(
        b"",
        b"\0",
        b"\n",
        b",",
        b"a,a\n1,2\n",
        b"a\0b,c\n1,2\n",
        b"a,b\n1,\0\n",
        b"a,b\n\xff\xfe,2\n",
    ),
    *(
        b"a,b\n1,2\n\xe2\x82",
        b"x" * (2**20 + 1),
        b"a,b\n" + b"1" * (2**20 + 1),
        b'a,b\n"' + b"1" * 2**21,
    ),
    b",".join(b"c%d" % i for i in range(5000)) + b"\n",
    *(b'"a\nb",c\n1,2\n', b"a\x07,b\n1,2\n", b"a" * 300 + b",b\n1,2\n"),
)
PART = (
    b'--x\r\nContent-Disposition: form-data; name="table"; filename="t.csv"\r\n\r\n'
    + GOOD
    + b"\r\n--x--\r\n"
)
#: Forms that are cut off, have another edge, no table, two, thousands, endless headers or fields.
FORMS = (
    *(b"", b"--x", PART[:-8], PART.replace(b"--x", b"--y"), PART[:60], b"\r\n" * 1000),
    *(
        PART.replace(b"table", b"chair"),
        PART[:-4] + b"\r\n" + PART,
        PART.replace(b'; filename="t.csv"', b""),
    ),
    PART.replace(b"\r\n\r\n", b"\r\nX: " + b"y" * 200_000 + b"\r\n\r\n", 1),
    b"".join(PART[:-4].replace(b"table", b"t%d" % i) + b"\r\n" for i in range(2000)),
    PART.replace(b"t.csv", b"t\0.csv"),
    b'--x\r\nContent-Disposition: form-data; name="f"\r\n\r\n' + b"z" * 2**21 + b"\r\n--x--\r\n",
)
KINDS = (
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "text/csv",
    "multipart/mixed; boundary=x",
)
#: How often a good table is sent, under every name, and one that is too long.
GOOD_TIMES = 4
TOO_LONG = 20


class Hostile:
    """Whoever sends these; keeps count of the answers."""

    def __init__(self) -> None:
        self.workspace = Workspace.for_ledger(None)
        self.answers = defaultdict(Counter)
        self.strays = []
        app = make_app(self.workspace, 8765, "t")
        self.client = TestClient(
            app, base_url="http://127.0.0.1:8765", headers={"sec-fetch-site": "same-origin"}
        )
        self.client.post("/open", data={"token": "t"})

    def file(self, kind, content, name="t.csv"):
        self._count(kind, self.client.post("/api/tables", files={"table": (name, content)}))

    def form(self, body, kind):
        self._count(
            "form", self.client.post("/api/tables", content=body, headers={"content-type": kind})
        )

    def _count(self, kind, answer):
        self.answers[kind][answer.status_code] += 1
        assert "Traceback" not in answer.text
        assert str(self.workspace.folder) not in answer.text
        for name, table in list(self.workspace.tables.items()):
            if table.path.parent != self.workspace.folder or "/" in table.name:
                self.strays.append(table.name)
            self.workspace.remove_table(name)


def own_memory() -> int:
    """The most that this process ever had; rusage would count what its parent had when it began."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def main(folder: str, limit: str) -> None:
    guard.ANSWER_STEP = 1e-6
    guard.MOST_UPLOAD = int(limit)
    sender = Hostile()
    for name in NAMES * GOOD_TIMES:
        sender.file("good", GOOD, name)
    for start, name in product(MAGIC, NAMES):
        sender.file("magic", start + bytes(range(256)) * 8, name)
    for content, name in product(BROKEN, NAMES):
        sender.file("broken", content, name)
    for over in range(1, TOO_LONG + 1):
        sender.file("over", GOOD + b"x" * (int(limit) + over))
    for body, kind in product(FORMS, KINDS):
        sender.form(body, kind)
    for bomb in sorted(Path(folder).iterdir()):
        sender.file("bomb", bomb.read_bytes(), bomb.name)
    left = len(list(sender.workspace.folder.iterdir()))
    sender.workspace.clear()
    memory = [own_memory(), 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]
    print(
        json.dumps(
            {"answers": sender.answers, "strays": sender.strays, "left": left, "memory": memory}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
