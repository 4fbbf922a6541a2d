"""Kernels with asynchronous copies, atomics, reductions, or boxes at the edge of tensors write memory correctly."""

from dataclasses import replace

import numpy as np
import pytest
from sptc import TensorMap, run_kernel
from sptc.errors import KernelError
from sptc.kernels.tensor_maps import MapRecord
from sptc.tests.kernels.recorded import MAPS, REDUCTIONS, compiled_kernel, recorded
from sptc.tests.kernels.test_small import WORDS, text

Random = np.random.Generator
BUFFER = ".shared .align 16 .b8 buffer[2048];"
ROW = "mov.u32 %r3, buffer; mad.lo.u32 %r4, %r0, 16, %r3; mad.wide.u32 %rd3, %r0, 12, %rd1;"


def test_copies(rng: Random) -> None:
    """``cp.async`` fills missing bytes with zeros, and writes nothing before the wait for its group."""
    source, result = rng.integers(1, 1 << 32, 4 * WORDS, dtype=np.uint32), np.zeros(WORDS, np.uint32)
    body = f"{ROW} cp.async.cg.shared.global [%r4], [%rd3], 16, 6; cp.async.commit_group; cp.async.wait_group 0;"
    body += "ld.shared.u32 %r2, [%r4+4]; ld.shared.u32 %r5, [%r4+8]; or.b32 %r2, %r2, %r5; st.global.u32 [%rd2], %r2;"
    done = run_kernel(text(body, head=BUFFER), 1, WORDS, [source, result]).after(result)
    np.testing.assert_array_equal(done, source[1::4] & 0xFFFF)
    body = f"{ROW} cp.async.ca.shared.global [%r4], [%rd3], 4; cp.async.commit_group;"
    body += "cp.async.ca.shared.global [%r4+4], [%rd3+4], 4; cp.async.commit_group; cp.async.wait_group 1;"
    body += "ld.shared.u32 %r2, [%r4{}]; st.global.u32 [%rd2], %r2;"
    copy = f"{ROW} setp.ne.u32 %p1, %r0, 63; setp.eq.u32 %p2, %r0, 63; selp.u32 %r5, 16, 8, %p1;"
    copy += "cp.async.cg.shared.global [%r4], [%rd3], 16, {}; cp.async.wait_all; ld.shared.u32 %r2, [%r4+4];"
    copy += "st.global.u32 [%rd2], %r2;"
    for program, place, values, expected in (
        (body, "", source, source[::4]),
        (body, "+4", source, 0 * source[::4]),
        (copy, "%r5", source[:-2], source[1::4]),  # the last thread copies the 8 bytes up to the end of the array
        (copy, "%p2", source[:-2], np.append(source[1:-4:4], 0)),  # the predicate `ignore-src` gives zeros
    ):
        filled = text(program.replace("{}", place), head=BUFFER)
        done = run_kernel(filled, 1, WORDS, [values, result], check=False).after(result)
        np.testing.assert_array_equal(done, expected)


def test_only_lanes_that_give_rows_need_addresses(rng: Random) -> None:
    """``ldmatrix.x1`` reads the rows of lanes 0 to 7; the registers of the other lanes hold no addresses."""
    body = """
  mov.u32 %r3, buffer; and.b32 %r5, %r0, 31; mad.lo.u32 %r4, %r5, 4, %r3; st.shared.u32 [%r4], %r5; bar.sync 0;
  mad.lo.u32 %r4, %r5, 16, %r3; setp.gt.u32 %p1, %r5, 7; @%p1 mov.u32 %r4, 0x7ffffff1;
  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r4]; st.global.u32 [%rd2], %r2;"""
    result = np.zeros(WORDS, np.uint32)
    done = run_kernel(text(body, head=BUFFER), 1, WORDS, [result, result], check=False).after(result)
    np.testing.assert_array_equal(done, np.arange(WORDS) % 32)


def test_atomics_on_two_words_serve_threads_in_order() -> None:
    """``atom.exch`` of a thread returns the number that the previous thread stored to the same word."""
    places, result = np.full(WORDS, 999, np.uint32), np.zeros(WORDS, np.uint32)
    body = "ld.param.u64 %rd3, [p0]; mul.lo.u32 %r3, %r0, %r0; bfe.u32 %r3, %r3, 3, 1; mad.wide.u32 %rd3, %r3, 4, %rd3;"
    body += "atom.global.exch.b32 %r2, [%rd3], %r0; st.global.u32 [%rd2], %r2;"
    done = run_kernel(text(body), 1, WORDS, [places, result])
    last, expected = [999, 999], []
    for thread in range(WORDS):
        place = thread * thread >> 3 & 1
        expected.append(last[place])
        last[place] = thread
    assert done.after(result).tolist() == expected
    assert done.after(places)[:2].tolist() == last


def test_reductions_at_barriers() -> None:
    """Warps that execute different ``bar.red`` at one barrier get its result, which later barriers do not change."""
    body = """setp.lt.u32 %p1, %r0, 32; setp.gt.u32 %p2, %r0, 5; @%p1 bra FIRST; bar.red.popc.u32 %r2, 1, %p2; bra NEXT;
FIRST: bar.red.popc.u32 %r2, 1, !%p2; NEXT: add.u32 %r2, %r2, 1; @%p1 bra LAST; bar.sync 2; bra END;
LAST: bar.sync 2; END: st.global.u32 [%rd2], %r2;"""
    result = np.zeros(64, np.uint32)
    assert run_kernel(text(body), 1, 64, [result, result]).after(result).tolist() == [39] * 64


def test_additions_in_global_memory_flush_only_f32() -> None:
    """``red.add`` of 32 threads flushes subnormal numbers of f32, but not numbers of f64 that are as small."""
    for type_, number, dtype, total in (
        ("f32", "0x00400000", np.float32, 0),
        ("f32", "0x00800000", np.float32, 2.0**-121),
        ("f64", "0x3370000000000000", np.float64, 2.0**-195),
    ):
        result, register = np.zeros(1, dtype), "%r2" if type_ == "f32" else "%rd3"
        body = f"mov.b{type_[1:]} {register}, {number}; red.global.add.{type_} [%rd4], {register};"
        assert run_kernel(text(f"ld.param.u64 %rd4, [p1]; {body}"), 1, 32, [result, result]).after(result)[0] == total


def test_arrivals_of_copies_at_an_mbarrier() -> None:
    """An arrival orders only what its threads did before it, and completes only their copies."""
    head = ".shared .align 16 .b8 buffer[1024]; .shared .align 8 .b64 barrier;"
    copy = "cp.async.ca.shared.global [%r4], [%rd1], 4;"
    wait = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [barrier], 0; @!%p3 bra AGAIN;"
    arrive = "cp.async.mbarrier.arrive.noinc.shared.b64 [barrier];"
    for count, body, found in (
        (WORDS, f"{copy} {arrive} WAIT xor.b32 %r5, %r4, 128;", []),
        (WORDS, f"{arrive} st.shared.u32 [%r4], %r0; WAIT xor.b32 %r5, %r4, 128;", ["race"]),
        (32, f"{copy} @%p2 {arrive} WAIT mov.u32 %r5, %r4;", ["read of data that a copy still writes"]),
    ):
        body = f"""
  mov.u32 %r3, buffer; mad.lo.u32 %r4, %r0, 4, %r3; setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p2, %r0, 32;
  @%p1 mbarrier.init.shared.b64 [barrier], {count}; bar.sync 0;
  {body.replace("WAIT", wait)} ld.shared.u32 %r2, [%r5]; st.global.u32 [%rd2], %r2;"""
        run = run_kernel(text(body, head=head), 1, WORDS, [words := np.arange(WORDS, dtype=np.uint32), words])
        assert [finding.kind for finding in run.findings] == found


def test_an_address_without_a_tensor_map_is_an_error() -> None:
    """A copy fails if the address of its tensor map is below shared memory, or beyond the end of global memory."""
    result = np.ones(WORDS, np.uint32)
    for address in (64, (1 << 44) + (1 << 40)):
        body = f"mov.u64 %rd3, {address}; mov.u32 %r3, buffer; mov.u32 %r4, 0;"
        body += "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd3, {%r4, %r4}], [%r3];"
        with pytest.raises(KernelError, match=f"there is no tensor map at {address:#x}"):
            run_kernel(text(body, head=BUFFER), 1, 32, [result, result])


def test_a_box_at_the_edge_of_its_tensor() -> None:
    for element in ("bf16", "f16", "u16"):
        record = MapRecord(1 << 44, (20, 3), (64,), (16, 4), element)
        assert MapRecord.decoded(record.encoded()) == record
    offsets, inside, places = record.units([8, 1])  # rows 1 and 2 of the box are in the tensor, and 12 columns of each
    assert offsets.tolist() == [80, 96, 144, 160, 208, 224, 272, 288]
    assert inside.tolist() == [16, 8] * 2 + [0, 0] * 2
    assert places.tolist() == [*range(0, 128, 16)]
    assert not record.units([-16, 0])[1].any()
    assert replace(record, swizzle="128B").units([8, 1])[2].tolist() == [0, 16, 128, 144, 256, 272, 384, 400]


def test_tiles_that_leave_their_tensor_or_array() -> None:
    """A fill of NaN has the bits of an H200. Wrong coordinates, and tensors that exceed their array, are errors."""
    head = ".shared .align 128 .b8 buffer[1024];"
    copy = "ld.v2.b64 {{%rd5, %rd6}}, [%rd3+{0}]; st.shared.v2.b64 [%r5+{0}], {{%rd5, %rd6}};"
    body = f"""
  mov.u32 %r3, buffer; setp.eq.u32 %p1, %r0, 0; @!%p1 bra WAIT; mbarrier.init.shared.b64 [%r3+512], 1;
  add.u32 %r5, %r3, 128; mov.b64 %rd3, map; cvta.param.u64 %rd3, %rd3;
  {" ".join(copy.format(place) for place in range(0, 128, 16))}
  REPLACE fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r3+512], 32;
  cvt.u64.u32 %rd7, %r3; cvta.shared.u64 %rd7, %rd7; add.u64 %rd7, %rd7, 128;
  cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd7, {{START}}], [%r3+512];
WAIT: bar.sync 0;
TRY: mbarrier.try_wait.parity.shared.b64 %p2, [%r3+512], 0; @!%p2 bra TRY;
  mad.lo.u32 %r4, %r0, 4, %r3; ld.shared.b32 %r2, [%r4]; st.global.u32 [%rd2], %r2;"""
    values, result = np.arange(1, 17, dtype=np.float32), np.zeros(32, np.uint32)
    store = "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd3, {-4}], [%r3];"
    change = "tensormap.replace.tile.{}.shared::cta.b1024.b32 [%r3+128], {};".format
    for field, start, message in (
        ("", -4, ""),
        ("", 2, "the first coordinate, 2, is not at a multiple of 16 bytes; thread 0"),
        (store, 0, "negative coordinate -4; thread 0"),
        (change("elemtype", "16"), 0, r"^line \d+: a tensor map with codes element=16, .* not modelled$"),
        (change("global_dim", "0, 2000000"), 200, r"^line \d+: .*: the tensor of the tensor map is not inside"),
    ):
        program = text(body.replace("REPLACE", field).replace("START", str(start)), head=head)
        program = program.replace(".param .u64 p1)", ".param .u64 p1, .param .align 64 .b8 map[128])")
        arguments = [values, result, TensorMap(values, (8,), "none", "nan")]
        if message:
            with pytest.raises(KernelError, match=message):
                run_kernel(program, 1, 32, arguments, check=False)
        else:
            done = run_kernel(program, 1, 32, arguments, check=False).after(result)
            assert done[:8].tolist() == [0x7FF77FF7] * 4 + values[:4].view(np.uint32).tolist()


def test_reductions(rng: Random) -> None:
    """Reductions equal those of an H100, and copies with tensor maps of f32 and tf32 equal those of an H200."""
    for name in (*REDUCTIONS, *MAPS):
        kernel = compiled_kernel(name)
        kernel.assert_equal(kernel.run()[0])
    kernel = recorded("triton.tma.f16")
    store = "async.bulk.tensor.2d.global.shared::cta."
    text = kernel.ptx.replace(f"cp.{store}", f"cp.reduce.{store}add.")
    before = rng.standard_normal(kernel.expected.shape).astype(np.float16)
    arguments = list(kernel.arguments)
    place = arguments[kernel.result]
    arguments[kernel.result] = TensorMap(before, place.box, place.swizzle)
    done = run_kernel(text, kernel.grid, kernel.block, arguments, shared=kernel.shared).after(before)
    exact = before.astype(np.float64) + kernel.expected.view(np.float16)
    np.testing.assert_array_equal(done, exact.astype(np.float16))


def test_maps_that_do_not_fit() -> None:
    array = np.zeros((64, 64), np.float16)
    program = text("").replace(".param .u64 p1", ".param .align 64 .b8 p1[128]").replace("ld.param.u64 %rd2, [p1];", "")
    for changes, message in (
        ({"box": 64}, "the box of a tensor map must be a tuple of integers, not 64"),
        ({"box": (64.0, 64)}, "the box of a tensor map must be a tuple of integers"),
        ({"box": (64,)}, "strides of equal length"),
        ({"box": (0, 64)}, r"sides of 1 to 256 elements, .* not \(0, 64\)"),
        ({"swizzle": "32B"}, "the rows of a box have 128 bytes; the swizzle 32B allows at most 32"),
        ({"shape": (128, 64)}, "a tensor map of 16384 bytes does not fit an array of 8192 bytes$"),
        ({"shape": (-1, 64)}, r"axes of a tensor map have 1 to 2\^32 - 1 elements"),
        ({"strides": (-128, 2)}, r"multiples of 16 bytes, the strides 0 to 2\^40; not 0x\w+ and \(-128,\)"),
        ({"strides": (130, 2), "shape": (9, 9)}, "multiples of 16 bytes"),
        ({"element": "u32"}, "a tensor map with elements of u32 does not fit an array of float16"),
        ({"array": array.view(np.int16), "fill": "nan"}, "fill of nan requires elements of type f16, .* f64, not u16"),
        ({"interleave": "16B"}, "interleave '16B' of a tensor map is not modelled"),
    ):
        fields = {"array": array, "box": (64, 64)} | changes
        with pytest.raises(KernelError, match=message):
            run_kernel(program, 1, WORDS, [0, TensorMap(**fields)])
