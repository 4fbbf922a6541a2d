"""The record of what was proved: of each problem its digest, so that only what has changed is proved again."""

import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..infra.files import write_whole
from ..infra.sources import code_digest
from .digest import problem_digest
from .proof import Outcome, settle
from .properties import Case

__all__ = ["RECORD", "Proof", "Record", "expected_seconds", "read_record", "settle_unless_recorded", "source_digest"]

#: The record that ships: every property of every preset.
RECORD = Path(__file__).with_name("proved.json")
#: What stands in place of the engine of an outcome that the record vouches for.
_RECORDED = "record"


@dataclass(frozen=True)
class Proof:
    """One problem that was proved.

    Attributes
    ----------
    property : str
        Name of the property.
    case : str
        Its parameters in words.
    presets : tuple of str
        Datapaths that it speaks of.
    digest : str
        Of the problem, :func:`~sptc.formal.digest.problem_digest`.
    engine : str
        What proved it.
    seconds : float or None
        Processor time that it took; None if it was not measured.
    """

    property: str
    case: str
    presets: tuple[str, ...]
    digest: str
    engine: str
    seconds: float | None


@dataclass(frozen=True)
class Record:
    """All cases that were proved.

    Attributes
    ----------
    sources : str or None
        What :func:`source_digest` returned when every property of every preset was in the record; None if that never
        was.
    proofs : tuple of Proof
        In no order; two cases may be the same problem.
    """

    sources: str | None
    proofs: tuple[Proof, ...]

    @property
    def by_digest(self) -> dict[str, Proof]:
        """One proof of each problem."""
        return {proof.digest: proof for proof in self.proofs}

    def with_proof(self, proof: Proof) -> "Record":
        """Return the record with one more proof."""
        return replace(self, proofs=(*self.proofs, proof))

    def write(self, path: Path) -> None:
        """Write it as JSON, a line for each problem.

        Raises
        ------
        FileError
            The file cannot be written.
        """
        order = sorted(self.proofs, key=lambda proof: (proof.property, proof.case, proof.presets, proof.digest))
        lines = ",\n".join(json.dumps(asdict(proof)) for proof in order)
        text = f'{{"sources": {json.dumps(self.sources)}, "proofs": [\n{lines}\n]}}\n'
        write_whole(path, text.encode())


def read_record(path: Path) -> Record:
    """Read a record; without a file it is empty.

    Raises
    ------
    FileError
        The file is no record.
    """
    if not path.exists():
        return Record(None, ())
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        proofs = (Proof(**{**proof, "presets": tuple(proof["presets"])}) for proof in fields["proofs"])
        return Record(fields["sources"], tuple(proofs))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path} is no record of proofs ({error})") from None


@cache
def source_digest() -> str:
    """Return a digest of the code that every problem follows from: hardware, question and properties."""
    package = Path(__file__).parents[1]
    files = [*package.glob("rtl/**/*.py"), *package.glob("isa/*.py"), *package.glob("formal/*.py")]
    return code_digest(files, importlib.metadata.version("amaranth"))


@cache
def _measured() -> dict[tuple[str, str], float]:
    """Return the most seconds that the shipped record says for each property and its parameters in words."""
    seconds: dict[tuple[str, str], float] = {}
    for proof in read_record(RECORD).proofs:
        key = proof.property, proof.case
        seconds[key] = max(seconds.get(key, 0.0), float("inf") if proof.seconds is None else proof.seconds)
    return seconds


def expected_seconds(case: Case) -> float:
    """Return about how much processor time a proof takes; infinity if it was never measured."""
    return _measured().get((case.subject.name, case.described), float("inf"))


def settle_unless_recorded(case: Case, seconds: float | None, known: Mapping[str, Proof]) -> tuple[Outcome, Proof]:
    """Prove a property, unless the record has the same problem; return the outcome and what a record says of it.

    Parameters
    ----------
    case : Case
        The property and its parameters.
    seconds : float or None
        As of :func:`~sptc.formal.proof.settle`.
    known : dict of str to Proof
        What was proved, by digest.
    """
    harness = case.harness()
    # Without a claim a property would hold of anything, and without a cover for want of cases.
    assert harness.claims, f"{case.subject.name} claims nothing"
    assert harness.covers, f"{case.subject.name} has no cover"
    digest = problem_digest(harness)
    names = case.subject.name, case.described, case.presets
    if earlier := known.get(digest):
        outcome = Outcome(case, _RECORDED, "", "proved", 0.0, {}, None, (), ())
        return outcome, Proof(*names, digest, earlier.engine, earlier.seconds)
    outcome = settle(case, seconds)
    return outcome, Proof(*names, digest, outcome.engine, round(outcome.seconds, 2))
