"""The errors users meet. All derive from :class:`Error`, itself a ``ValueError``."""

__all__ = ["BackendError", "Error", "FileError", "InstructionError", "MetadataError", "OperandError", "OrderError"]


class Error(ValueError):
    """Base of every error this package raises for bad input."""


class InstructionError(Error):
    """A PTX instruction that does not parse, or that an architecture does not have."""


class OperandError(Error):
    """An operand that is missing, superfluous, or of the wrong shape, type or range."""


class OrderError(Error):
    """A call that comes where PTX leaves it undefined."""


class BackendError(Error):
    """A back end that does not exist, or that lacks something it needs on this machine."""


class FileError(Error):
    """A file that is not what the command needs."""


class MetadataError(Error):
    """A metadata nibble that the instruction declares undefined.

    Attributes
    ----------
    batch : tuple of int
        Index into the leading (batch) axes; empty without a batch.
    row, chunk : int
        Row of A and chunk within that row.
    lane, low_bit : int
        Thread whose metadata register holds the nibble, or lane of tensor memory; and the bit where the nibble starts.
    nibble : int
        The offending value, 0 to 15.
    rule, meaning : str
        Name of the violated rule, a key of :data:`sptc.isa.metadata.RULES`, and the rule in words.
    column : int or None
        Column of tensor memory; None where metadata is in registers.
    """

    def __init__(
        self,
        batch: tuple[int, ...],
        row: int,
        chunk: int,
        lane: int,
        low_bit: int,
        nibble: int,
        rule: str,
        meaning: str,
        column: int | None = None,
    ) -> None:
        self.batch = batch
        self.row = row
        self.chunk = chunk
        self.lane = lane
        self.low_bit = low_bit
        self.nibble = nibble
        self.rule = rule
        self.meaning = meaning
        self.column = column
        position = "" if not batch else f"batch {batch[0] if len(batch) == 1 else batch}, "
        word = f"lane {lane}" if column is None else f"lane {lane}, column {column}"
        super().__init__(
            f"undefined metadata at {position}row {row}, chunk {chunk} "
            f"({word}, bits {low_bit + 3}:{low_bit}): nibble 0b{nibble:04b} breaks the {rule} rule, {meaning}"
        )

    def __reduce__(self) -> tuple[type["MetadataError"], tuple[object, ...]]:
        """Rebuild from the fields, so that worker processes can send it."""
        return MetadataError, (self.batch, *self._place)

    def at(self, batch: tuple[int, ...]) -> "MetadataError":
        """Return the same error at another batch index."""
        return MetadataError(batch, *self._place)

    @property
    def _place(self) -> tuple[int, int, int, int, int, str, str, int | None]:
        """All fields behind the batch, in the order of the constructor."""
        place = (self.row, self.chunk, self.lane, self.low_bit)
        return *place, self.nibble, self.rule, self.meaning, self.column
