"""Record of finished proofs: digests of the proved logic. Only properties whose logic has changed are proved again."""

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

#: Path of the record of proofs that the package ships. The record contains every property for every preset.
RECORD = Path(__file__).with_name("proved.json")
#: Text that a report gives instead of the name of a proof engine if the record contains the proof.
_RECORDED = "record"


@dataclass(frozen=True)
class Proof:
    """Entry of the record of proofs. It names a property, its parameters, and the engine that proved it."""

    property: str
    case: str  #: Parameters of the proof case as text
    presets: tuple[str, ...]  #: Configurations for which the property is proved with these parameters
    digest: str  #: Digest of the proof problem, from :func:`~sptc.formal.digest.problem_digest`
    engine: str  #: Name of the proof engine that found the proof
    seconds: float | None  #: Processor time in seconds, or None if it was not measured


@dataclass(frozen=True)
class Record:
    """Record of proofs, with an entry for each property and set of parameters that was proved."""

    #: Source digest (:func:`source_digest`) at the time when every property of every preset was last proved, or None.
    sources: str | None
    proofs: tuple[Proof, ...]  #: Recorded proofs in any order. Two proofs may have the same digest of their problem.

    @property
    def by_digest(self) -> dict[str, Proof]:
        """Return the recorded proofs by digest (hash of what is proved); of equal digests, the last proof."""
        return {proof.digest: proof for proof in self.proofs}

    def with_proof(self, proof: Proof) -> "Record":
        """Return a copy of this record of proofs with one more proof."""
        return replace(self, proofs=(*self.proofs, proof))

    def write(self, path: Path) -> None:
        """Write the record of proofs as JSON, one line per proof. Raise a `FileError` if the file cannot be written."""
        order = sorted(self.proofs, key=lambda proof: (proof.property, proof.case, proof.presets, proof.digest))
        lines = ",\n".join(json.dumps(asdict(proof)) for proof in order)
        text = f'{{"sources": {json.dumps(self.sources)}, "proofs": [\n{lines}\n]}}\n'
        write_whole(path, text.encode())


def read_record(path: Path) -> Record:
    """Read a record of proofs. A missing file is an empty record. Raise a `FileError` if the file is not a record."""
    if not path.exists():
        return Record(None, ())
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        proofs = tuple(Proof(**{**proof, "presets": tuple(proof["presets"])}) for proof in fields["proofs"])
        for p in proofs:
            if not all(isinstance(text, str) for text in (p.property, p.case, p.digest, p.engine, *p.presets)):
                raise ValueError("a property, case, digest, engine or preset is not a text")
            if not isinstance(p.seconds, float | int | None):
                raise ValueError("a value of 'seconds' is not a number")
        return Record(fields["sources"], proofs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path} is not a record of proofs: {error}") from None


@cache
def source_digest() -> str:
    """Return a digest of all code that affects the logic to be proved: ``rtl/``, ``isa/`` and ``formal/``."""
    package = Path(__file__).parents[1]
    files = [*package.glob("rtl/**/*.py"), *package.glob("isa/*.py"), *package.glob("formal/*.py")]
    return code_digest(files, importlib.metadata.version("amaranth"))


@cache
def _measured() -> dict[tuple[str, str], float]:
    """Return the largest recorded processor time in seconds for each property (by name) and parameters (as text)."""
    seconds: dict[tuple[str, str], float] = {}
    for proof in read_record(RECORD).proofs:
        key = proof.property, proof.case
        seconds[key] = max(seconds.get(key, 0.0), float("inf") if proof.seconds is None else proof.seconds)
    return seconds


def expected_seconds(case: Case) -> float:
    """Return the processor time in seconds that the package records for a proof; infinity if it was not measured."""
    return _measured().get((case.subject.name, case.described), float("inf"))


def settle_unless_recorded(case: Case, seconds: float | None, known: Mapping[str, Proof]) -> tuple[Outcome, Proof]:
    """Prove a property for one parameter set, unless `known` has this proof. Return the outcome and the proof's entry.

    `known` are the recorded proofs, by digest; `seconds` is as for :func:`~sptc.formal.proof.settle`.
    """
    harness = case.harness()
    # A property without claims is always true. Without covers, the claims may be true only because the conditions that
    # they are about never occur.
    assert harness.claims, f"{case.subject.name} claims nothing"
    assert harness.covers, f"{case.subject.name} has no cover"
    digest = problem_digest(harness)
    names = case.subject.name, case.described, case.presets
    if earlier := known.get(digest):
        outcome = Outcome(case, _RECORDED, "", "proved", 0.0, {}, None, (), ())
        return outcome, Proof(*names, digest, earlier.engine, earlier.seconds)
    outcome = settle(case, seconds)
    return outcome, Proof(*names, digest, outcome.engine, round(outcome.seconds, 2))
