# SPDX-License-Identifier: Apache-2.0
"""The witnesses of one ledger: their list beside the books, and what they have to say.

The list is written into the file of heads as a digest, so that nobody takes it away unnoticed who
cannot write that file. More than half of the witnesses must be reached before anything is written,
and must keep its head before anything is read: any two copies of the books then have one in common,
which tells the second of the first.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from pathlib import Path

from sottovoce import private_files
from sottovoce.errors import InvalidParameter, LedgerUnavailable
from sottovoce.ledgers import witness
from sottovoce.ledgers.keyfile import LIST, LedgerKeyFile
from sottovoce.ledgers.signing import is_signed, make_entry_message
from sottovoce.ledgers.witness import Head, Tree, Witness, WitnessUnreachable

#: The digest of no list.
EMPTY_LIST_DIGEST = hashlib.sha256(b"").digest()


class Witnesses:
    """Those who keep the heads of one ledger."""

    def __init__(self, beside: LedgerKeyFile, ledger: str) -> None:
        self._beside = beside
        self._ledger = ledger
        self._places: dict[str, int] = {}
        self.unreached: dict[str, str] = {}
        self.addresses = self._read_list()

    def matches_list(self, listed: bytes | None) -> bool:
        """Whether the list is the one whose digest was written down last."""
        return _digest_list(self.addresses) == (EMPTY_LIST_DIGEST if listed is None else listed)

    def names(self) -> list[str]:
        """Returns what can be printed of the addresses."""
        return [
            witness.describe_address(address, number)
            for number, address in enumerate(self.addresses, 1)
        ]

    def add(self, address: str, head: Head) -> None:
        """Adds a witness, which is given the last head; raises if it cannot be reached."""
        if self._beside.heads is None:
            raise InvalidParameter(
                "Books in memory have no witnesses.", "", "Keep the books in a file or on a server."
            )
        if address in self.addresses or "\n" in address:
            raise InvalidParameter(
                "This witness is in the list already, or is none.", "", "Name another."
            )
        added = self._open_witness(address)
        try:
            added.make()
            added.store_head(self._ledger, head)
        except WitnessUnreachable as error:
            raise _unavailable_error(f"The witness cannot be used: {error}.") from None
        self._write_list([*self.addresses, address])

    def remove(self, address: str) -> None:
        """Takes a witness from the list, by its address or by its number from 1; what it holds
        stays there.
        """
        if address in self.addresses:
            which: str | None = address
        else:
            which = dict(enumerate(self.addresses, 1)).get(_parse_number(address))
        if which is None:
            raise InvalidParameter(
                "There is no such witness in the list.", "", "Name one that `witness list` shows."
            )
        self._write_list([kept for kept in self.addresses if kept != which])

    def collect_foreign_heads(self, unknown: Callable[[list[Head]], list[Head]]) -> list[Head]:
        """Returns the heads that are not in the books, of those that witnesses were given since
        they were last asked.

        Remembers who could not be asked. ``unknown`` returns the heads that are not in the books,
        which are looked at after the witness: whatever it was given from here is in them by then.
        """
        found: list[Head] = []
        self.unreached = {}
        for name, address in zip(self.names(), self.addresses, strict=True):
            try:
                heads, place = self._open_witness(address).read(
                    self._ledger, self._places.get(address, 0)
                )
                others = unknown(heads)
                if not all(map(self._is_signed, others)):
                    raise WitnessUnreachable("it holds a head that nobody has signed")
                found += others
                self._places[address] = place
            except WitnessUnreachable as error:
                self.unreached[name] = str(error)
        return found

    def refuse_unreachable_majority(self, meanwhile: str) -> None:
        """Raises if there are witnesses, and no majority of them could be reached."""
        if self.addresses and 2 * len(self.unreached) >= len(self.addresses):
            raise _unavailable_error("Too few witnesses of these books can be reached.", meanwhile)

    def store_head(self, head: Head) -> dict[str, str]:
        """Gives a head to everybody who can be reached, and returns who could not be, and why."""
        failed = {}
        for name, address in zip(self.names(), self.addresses, strict=True):
            try:
                self._open_witness(address).store_head(self._ledger, head)
            except WitnessUnreachable as error:
                failed[name] = str(error)
        return failed

    def make_list_line(self) -> tuple[str, int, bytes]:
        """Returns the line for the file of heads that says which list is the right one."""
        return LIST, len(self.addresses), _digest_list(self.addresses)

    def check(self) -> dict[str, str]:
        """Returns what each witness holds, in words: all of its heads, and for a log all heads of
        its tree.
        """
        told = {}
        for name, address in zip(self.names(), self.addresses, strict=True):
            opened = self._open_witness(address)
            try:
                heads, _ = opened.read(self._ledger, 0)
                more = ""
                if isinstance(opened, witness.LogWitness):
                    trees = opened.read_trees()
                    if trees:
                        last_size = trees[-1].size
                    else:
                        last_size = 0
                    more = (
                        f"; {len(trees):,} tree heads are signed and consistent, the last of "
                        f"{last_size:,} records"
                    )
                last = max((head.number for head in heads), default=0)
                told[name] = f"{len(heads):,} heads, the newest of entry {last:,}{more}"
            except WitnessUnreachable as error:
                told[name] = f"not reached: {error}"
        return told

    def _is_signed(self, head: Head) -> bool:
        message = make_entry_message(self._ledger, head.number, head.digest)
        return is_signed(self._beside.signer.public, message, head.signature)

    def _open_witness(self, address: str) -> Witness:
        return witness.open_witness(address, self._beside.signer, self._make_tree_store(address))

    def _make_tree_store(self, address: str) -> Callable[[Tree | None], Tree]:
        """Returns what keeps the last tree of a log beside the books, authenticated with the
        key.
        """
        name = self._beside.hidden(address)[:32]
        path = self._make_path(f".tree-{name}")

        def seen(tree: Tree | None) -> Tree:
            if tree is not None:
                _write_file(
                    path, json.dumps([tree.size, tree.root.hex(), self._compute_code(name, tree)])
                )
                return tree
            try:
                size, root, code = json.loads(path.read_text(encoding="ascii"))
                last = Tree(int(size), bytes.fromhex(root))
                if secrets.compare_digest(code, self._compute_code(name, last)):
                    return last
            except (OSError, ValueError, TypeError):
                pass  # raised below
            raise WitnessUnreachable("what was last seen of it is missing beside the books")

        return seen

    def _compute_code(self, name: str, tree: Tree) -> str:
        return self._beside.hidden(f"tree {name} {tree.size} {tree.root.hex()}")

    def _make_path(self, ending: str) -> Path:
        heads = self._beside.heads or Path()
        return heads.with_name(heads.name.removesuffix(".heads") + ending)

    def _read_list(self) -> list[str]:
        if self._beside.heads is None:
            return []
        try:
            return self._make_path(".witnesses").read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, UnicodeDecodeError):
            return []  # which is found out, if there was one
        except OSError:
            pass  # raised below
        raise _unavailable_error("The list of witnesses beside the books cannot be read.")

    def _write_list(self, addresses: list[str]) -> None:
        _write_file(self._make_path(".witnesses"), "".join(f"{address}\n" for address in addresses))
        self.addresses = addresses
        self._beside.write([self.make_list_line()])


def _digest_list(addresses: list[str]) -> bytes:
    return hashlib.sha256("".join(f"{address}\n" for address in addresses).encode()).digest()


def _parse_number(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 5:
        return int(text)
    return 0


def _write_file(path: Path, text: str) -> None:
    """Writes a file as a whole, for its owner alone."""
    try:
        private_files.write(path, text.encode())
        return
    except OSError:
        pass  # raised below
    raise _unavailable_error("What is known about witnesses cannot be written beside the books.")


def _unavailable_error(found: str, meanwhile: str = "nothing was charged") -> LedgerUnavailable:
    return LedgerUnavailable(
        found,
        "More than half of them keep a head before a value is read, so that no copy of the books "
        "is spent again.",
        f"Make them reachable, or take those from the list that are gone for good; {meanwhile}.",
    )
