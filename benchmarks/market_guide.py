# SPDX-License-Identifier: Apache-2.0
"""The commands of the guide to the market, with what they print, and what a buyer gets by them.

    python benchmarks/market_guide.py             the commands once, on one split, with their output
    python benchmarks/market_guide.py --worth     error + γ·payment over splits and draws

Both go through the same files and the same commands, as somebody with a terminal would: public rows
choose the constants, sellers report, the allocation is released with. Rows are scikit-learn's
breast cancer; splits are those of benchmarks/market.py. Only the noise of releases differs from one
run to the next.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import shlex
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner

from sottovoce.cli.main import app
from sottovoce.papers.market_published import COSTS, FIRST, TRADE_OFFS, DataSplit

PRIOR = f"uniform:{COSTS[0]:g}:{COSTS[1]:g}"
#: Ranges that anybody could declare, without a row: wide, and the same in every split.
WIDE = 10.0


def write_tables(split: DataSplit, costs) -> None:
    """Writes public.csv, sellers.csv, rows.csv, test.csv and schema.toml into this folder."""
    names = [name.replace(" ", "_") for name in load_breast_cancer().feature_names]
    levels = ["malignant", "benign"]
    for file, which in (("public", split.public), ("rows", split.sellers), ("test", split.test)):
        with Path(f"{file}.csv").open("w", newline="") as out:
            lines = csv.writer(out)
            lines.writerow(["person", *names, "diagnosis"])
            for i in which.tolist():
                lines.writerow([f"s{i}", *split.X[i].tolist(), levels[int(split.y[i])]])
    with Path("sellers.csv").open("w", newline="") as out:
        lines = csv.writer(out)
        lines.writerow(["seller", "cost"])
        lines.writerows(
            (f"s{i}", repr(float(c))) for i, c in zip(split.sellers.tolist(), costs, strict=True)
        )
    top = WIDE * np.abs(load_breast_cancer().data).max(axis=0)
    highs = [10 ** math.ceil(math.log10(most)) for most in top.tolist()]
    columns = [
        f'[columns."{name}"]\nkind = "number"\nlow = 0\nhigh = {high}\n'
        for name, high in zip(names, highs, strict=True)
    ]
    label = '[columns.diagnosis]\nkind = "factor"\nlevels = ["malignant", "benign"]\n'
    head = 'person = "person"\nlabel = "diagnosis"\n\n'
    Path("schema.toml").write_text(head + "\n".join([*columns, label]))


def run(line: str) -> str:
    """Runs a command of the terminal, and returns what it prints."""
    result = CliRunner().invoke(app, shlex.split(line)[1:])
    if result.exit_code:
        raise SystemExit(f"{line}\n{result.output}")
    return result.output


def make_commands(trade_off: float) -> list[str]:
    """Returns the first two commands of the guide."""
    return [
        f"sottovoce market sellers.csv --prior {PRIOR} --trade-off {trade_off:g} --tune public.csv "
        "--schema schema.toml --tuned-schema tuned.toml --out allocation.csv --force",
    ]


def measure(split: DataSplit, costs, trade_off: float) -> tuple[float, float, str]:
    """Returns the share of test rows misclassified, what was paid, and what was printed."""
    write_tables(split, costs)
    (line,) = make_commands(trade_off)
    printed = run(line)
    alpha = re.search(r"For the release: with (--alpha [\d.]+)", printed)
    run(
        "sottovoce release logistic rows.csv --schema tuned.toml --budgets allocation.csv "
        f"{alpha[1] if alpha else ''} --out model.json --force"
    )
    run("sottovoce predict model.json test.csv --out predicted.csv --force")
    with Path("allocation.csv").open() as lines:
        paid = sum(float(line["payment"]) for line in csv.DictReader(lines))
    with Path("test.csv").open() as truth, Path("predicted.csv").open() as told:
        pairs = zip(csv.DictReader(truth), csv.DictReader(told), strict=True)
        wrong = [real["diagnosis"] != guess["prediction"] for real, guess in pairs]
    return float(np.mean(wrong)), paid, printed


def show_once(trade_off: float) -> None:
    split = DataSplit.of(FIRST)
    error, paid, printed = measure(split, split.draw_costs(100 * FIRST, False), trade_off)
    (line,) = make_commands(trade_off)
    print(f"$ {line}\n{printed}")
    print(f"misclassified {error:.3f}, paid {paid:.6g}, together {error + trade_off * paid:.3f}")


def show_worth(splits: int, draws: int) -> None:
    for trade_off in TRADE_OFFS:
        found = []
        for number in range(FIRST, FIRST + splits):
            split = DataSplit.of(number)
            for seed in range(100 * number, 100 * number + draws):
                error, paid, _ = measure(split, split.draw_costs(seed, False), trade_off)
                found.append((error, paid, error + trade_off * paid))
        means = np.mean(found, axis=0)
        spread = float(np.std(found, axis=0, ddof=1)[2]) / math.sqrt(len(found))
        told = dict(zip(("error", "payment", "overall"), means.round(4).tolist(), strict=True))
        print(json.dumps({"trade_off": trade_off, **told, "standard_error": round(spread, 4)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worth", action="store_true")
    parser.add_argument("--trade-off", type=float, default=10.0)
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--draws", type=int, default=6)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if asked.worth:
            show_worth(asked.splits, asked.draws)
        else:
            show_once(asked.trade_off)
