"""A MetadataError is unchanged by pickling, and its batch index can be replaced."""

import pickle

import pytest
import sptc
from sptc.errors import NibblePlace


@pytest.mark.parametrize("column", [None, 17, 0])
def test_metadata_error(column: int | None) -> None:
    place = NibblePlace(batch=(3,), row=41, chunk=6, lane=5, low_bit=4, column=column)
    error = sptc.MetadataError(place, 0b0101, "plain", "which requires two different indices")
    assert (f"column {column}" in str(error)) == (column is not None)
    sent, moved = pickle.loads(pickle.dumps(error)), error.at((1, 2))
    assert (sent.batch, str(sent)) == ((3,), str(error))
    assert (moved.batch, str(moved)) == ((1, 2), str(error).replace("batch 3", "batch (1, 2)"))
    for name in ("row", "chunk", "lane", "low_bit", "nibble", "rule", "meaning", "column"):
        assert getattr(sent, name) == getattr(moved, name) == getattr(error, name)
