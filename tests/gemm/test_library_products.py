"""What kernels of libraries computed on an H200: every recorded product is identified."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import sptc

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LIBRARIES = Path(__file__).parents[2] / "recordings" / "libraries"
RECORDED = json.loads((LIBRARIES / "products.json").read_text(encoding="utf-8"))["products"]
#: Beside those of cuSPARSELt that test_identify has.
QUICK = ("cublas.bf16.256x128x2048", "cublas.e4m3.256x128x2048.use_fast_accumFalse")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.regression)
        for name, said in RECORDED.items()
        if "refused" not in said
    ],
)
def test_what_libraries_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bit, by the way that is recorded."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import library_products

    (product,) = (product for product in library_products.products() if product.name == name)
    assert library_products.digest_of(product) == RECORDED[name]["operands"]
    with np.load(LIBRARIES / "products.npz") as results:
        y = results[name]
    assert hashlib.sha256(y.tobytes()).hexdigest() == RECORDED[name]["sha256"]
    a, b = library_products.operands(product)
    dense = product.library != "cusparselt"
    found = sptc.identify(a, b, y, format=product.format, result=product.result, dense=dense)
    assert found.exact
    assert found.compared == y.size
    assert str(found.way) == RECORDED[name]["way"]
