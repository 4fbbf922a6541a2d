"""Seeded operands of an instruction with expected results, for the testbench of another design."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import FileError, OperandError
from ..infra.files import STANDARD_OUTPUT, write_whole
from ..rtl.config import CoreConfig
from .pack_files import Subject, require_placed, subject_named
from .testbench import bench_files
from .vector_formats import FORMATS, Folder, write_format
from .vector_levels import LEVELS, Drawn, Vectors, register_vectors, top_vectors
from .vector_steps import datapath_numerics
from .vector_tiles import NIBBLES, drawn_distributions

__all__ = ["BACKENDS", "MANIFEST", "VectorRequest", "content_digest", "write_vectors"]

#: Name of the file that describes the others.
MANIFEST = "manifest.json"
#: Outputs, or words of tensor memory, computed at once.
_AT_ONCE = 1 << 20
_TENSOR_MEMORY_WORDS = 1 << 16
#: Back ends for the expected results.
BACKENDS = ("golden", "native")


@dataclass(frozen=True, kw_only=True)
class VectorRequest:
    """A request of vectors, checked at construction.

    Attributes
    ----------
    instruction : str
        PTX opcode; for ``tcgen05`` followed by shape and types in brackets.
    arch : str
        Architecture that has the instruction.
    tiles : int
        Number of tiles, at least one; each is one instruction.
    seed : int
        Seed; equal requests give equal bytes.
    format : str
        ``npz``, ``hex``, ``json`` or ``svh``.
    level : str
        ``registers``: content of registers and memory; ``warp``: streams of the emitted warp; ``row``, ``unit``: steps
        of these tops.
    config : CoreConfig or None
        Datapath for the other levels; None at level ``registers``.
    distribution : str or None
        One of :func:`~sptc.sim.benches.random_operands.distributions`; None cycles through all that fit.
    nibbles : str
        ``legal``; ``software``: also 0x0 for stored zeros, as libraries write it; ``all`` sixteen.
    backend : str
        Back end of the results at level ``registers``: ``golden``, or ``native`` with the same bits, which is several
        times as fast. The other levels use the golden model.
        times as fast. The other levels' are the golden model's.
    bench : bool
        Also write the Verilog of the top and a testbench for it, in format ``hex``.

    Raises
    ------
    Error
        No such vectors exist.
    """

    instruction: str
    arch: str
    tiles: int
    seed: int = 0
    format: str = "npz"
    level: str = "registers"
    config: CoreConfig | None = None
    distribution: str | None = None
    nibbles: str = "legal"
    backend: str = "golden"
    bench: bool = False

    def __post_init__(self) -> None:
        for name, accepted in (
            ("format", FORMATS),
            ("level", LEVELS),
            ("nibbles", tuple(NIBBLES)),
            ("backend", BACKENDS),
        ):
            value = getattr(self, name)
            if value not in accepted:
                raise OperandError(f"{name} must be {' or '.join(map(repr, accepted))}, not {value!r}")
        if self.tiles < 1 or self.seed < 0:
            raise OperandError(f"tiles must be 1 or more and the seed 0 or more, not {self.tiles} and {self.seed}")
        subject = self.subject
        drawn_distributions(subject.instruction, self.distribution)
        require_placed(subject, self.arch)
        if (self.level == "registers") != (self.config is None):
            raise OperandError(f"level {self.level!r} takes {'no' if self.config else 'a'} datapath")
        if self.config:
            datapath_numerics(self.config, subject.instruction, self.arch)
        if self.level != "registers" and self.backend != BACKENDS[0]:
            raise OperandError(f"level {self.level!r} is computed by the golden model, not by {self.backend!r}")
        if self.bench and (self.level == "registers" or self.format != "hex"):
            raise OperandError("a bench is of a level that is a top, warp, row or unit, in format hex")

    @property
    def subject(self) -> Subject:
        """The instruction."""
        return subject_named(self.instruction)


def write_vectors(request: VectorRequest, folder: Path) -> dict[str, Any]:
    """Write vectors and their manifest to a folder.

    Parameters
    ----------
    request : VectorRequest
        The request.
    folder : Path
        Output folder; created if missing. Files of the same names are replaced after all new ones are written, the
        manifest last.

    Returns
    -------
    dict
        The manifest: the request, the shape and meaning of each table, SHA-256 and size of each file, and ``sha256``,
        the :func:`content_digest` of the rest.

    Raises
    ------
    Error
        No such vectors exist, or they cannot be written.
    """
    if folder == STANDARD_OUTPUT:
        raise FileError("vectors are several files and take a folder, not standard output")
    vectors = _vectors(request)
    facts = _facts(request, vectors)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Folder.filled(folder) as files:
            if request.bench:
                assert request.config
                for name, text in bench_files(request.config, request.level, vectors.tables, request.seed).items():
                    files.write(name, text)
            write_format(request.format, files, vectors, facts)
            (folder / MANIFEST).unlink(missing_ok=True)  # it describes the files that are replaced now
    except OSError as error:
        raise FileError(f"{folder} cannot be made a folder of vectors ({error.strerror or error})") from None
    manifest = {**facts, "files": dict(sorted(files.digests.items()))}
    manifest["sha256"] = content_digest(manifest)
    write_whole(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    return manifest


def content_digest(manifest: dict[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its key ``sha256``, as JSON with sorted keys and no spaces."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _vectors(request: VectorRequest) -> Vectors:
    subject = request.subject
    i = subject.instruction
    each = i.m * i.n if subject.opcode is None else max(i.m * i.n, subject.opcode.cta_group * _TENSOR_MEMORY_WORDS)
    block = max(1, _AT_ONCE // each)
    drawn = Drawn(i, request.distribution, request.nibbles, request.tiles, block, request.seed)
    if request.config is None:
        return register_vectors(subject, request.arch, drawn, request.backend)
    return top_vectors(request.level, request.config, subject, request.arch, drawn)


def _facts(request: VectorRequest, vectors: Vectors) -> dict[str, Any]:
    subject = request.subject
    return {
        "sptc": __version__,
        "instruction": subject.name,
        "arch": request.arch,
        "level": request.level,
        "configuration": request.config and asdict(request.config),
        "format": request.format,
        "tiles": request.tiles,
        "seed": request.seed,
        "distributions": list(drawn_distributions(subject.instruction, request.distribution)),
        "nibbles": request.nibbles,
        "computed_by": request.backend,
        "immediates": vectors.immediates,
        "tables": [{**asdict(table), "count": table.count, "meaning": list(table.meaning)} for table in vectors.tables],
    }
