"""The message and the attributes of a MetadataError are right, also after pickling."""

import pickle

import sptc
from sptc.errors import NibblePlace

FIELDS = ("batch", "row", "chunk", "lane", "low_bit", "nibble", "rule", "meaning", "column")
#: Column of tensor memory, and the text that describes the position.
PLACES = [(None, "(lane 5, bits 7:4)"), (17, "(lane 5, column 17, bits 7:4)"), (0, "(lane 5, column 0, bits 7:4)")]


def test_metadata_error() -> None:
    """The message states the position of the nibble. A pickled copy is equal; `at` changes only the batch."""
    for column, place in PLACES:
        nibble = NibblePlace(batch=(3,), row=41, chunk=6, lane=5, low_bit=4, column=column)
        error = sptc.MetadataError(nibble, 0b0101, "plain", "which requires two different indices")
        message = f"undefined metadata at batch 3, row 41, chunk 6 {place}: nibble 0b0101 breaks the plain rule, "
        assert str(error) == message + "which requires two different indices"
        assert error.column == column
        sent, moved = pickle.loads(pickle.dumps(error)), error.at((1, 2))
        assert str(sent) == str(error)
        assert str(moved) == str(error).replace("batch 3", "batch (1, 2)")
        for name in FIELDS:
            assert getattr(sent, name) == getattr(error, name)
            assert name == "batch" or getattr(moved, name) == getattr(error, name)
        assert moved.batch == (1, 2)
    place = NibblePlace(batch=(), row=0, chunk=0, lane=0, low_bit=0)
    assert sptc.MetadataError(place, 0, "plain", "which requires two different indices").column is None
