// Calls the C interface (sptc.h) of libsptc, which is compiled to WebAssembly.
"use strict";

const SPTC_ABI = 1;
/** Bytes of the C structure sptc_matrices, and offset of its first pointer, which follows four 64-bit integers. */
const MATRICES_BYTES = 88, FIRST_POINTER = 32;

class Library {
  /** Loads libsptc from the bytes of the WebAssembly module. */
  constructor(bytes) {
    const unexpected = (status) => { throw new Error(`libsptc ended with status ${status}`); };
    const imports = {
      env: { emscripten_notify_memory_growth() {} },
      wasi_snapshot_preview1: { proc_exit: unexpected },
    };
    this.c = new WebAssembly.Instance(new WebAssembly.Module(bytes), imports).exports;
    this.c._initialize();
  }

  /** Copies bytes to new memory of libsptc. Returns the pointer to this memory, and appends it to `allocated`. */
  #copied(bytes, allocated) {
    const pointer = this.c.malloc(bytes.length || 1);
    allocated.push(pointer);
    new Uint8Array(this.c.memory.buffer).set(bytes, pointer);
    return pointer;
  }

  #text(pointer) {
    const bytes = new Uint8Array(this.c.memory.buffer);
    return new TextDecoder().decode(bytes.slice(pointer, bytes.indexOf(0, pointer)));
  }

  /**
   * Returns D of one output, as a code. The operands have the form of those of trace(); element and result sizes are in
   * bits. Throws an error with the message of libsptc if libsptc rejects the instruction.
   */
  multiply(text, arch, k, operands, elementBits, resultBits) {
    const allocated = [], { c } = this;
    const zeroEnded = (word) => this.#copied(new TextEncoder().encode(`${word}\0`), allocated);
    const view = () => new DataView(c.memory.buffer);
    const slot = this.#copied(new Uint8Array(4), allocated);
    let status = c.sptc_open(SPTC_ABI, zeroEnded(text), zeroEnded(arch), slot);
    const handle = view().getUint32(slot, true);
    try {
      const matrices = this.#copied(new Uint8Array(MATRICES_BYTES), allocated);
      const { a, b, nibbles, scaleA, scaleB } = operands;
      const arrays = [
        packed(a, elementBits), packed(b, elementBits), packed([operands.c], resultBits),
        packed(nibbles, 8), packed(scaleA, 8), packed(scaleB, 8), packed([0], resultBits),
      ];
      const pointers = arrays.map((bytes) => (bytes.length ? this.#copied(bytes, allocated) : 0));
      [1, 1, 1, k].forEach((value, place) => view().setBigInt64(matrices + 8 * place, BigInt(value), true));
      arrays.forEach((bytes, place) => {
        view().setUint32(matrices + FIRST_POINTER + 8 * place, pointers[place], true);
        view().setUint32(matrices + FIRST_POINTER + 8 * place + 4, bytes.length, true);
      });
      status = status || c.sptc_multiply(handle, matrices, 1);
      if (status) throw new Error(this.#text(c.sptc_last_error(handle)));
      const d = pointers[pointers.length - 1];
      return resultBits === 16 ? view().getUint16(d, true) : view().getUint32(d, true);
    } finally {
      c.sptc_close(handle);
      allocated.forEach((pointer) => c.free(pointer));
    }
  }
}

/** Returns codes as little-endian bytes. A code of 4 or 8 bits takes one byte. */
function packed(codes, bits) {
  const size = Math.max(bits / 8, 1), bytes = new Uint8Array(size * codes.length);
  codes.forEach((code, place) => {
    for (let byte = 0; byte < size; ++byte) bytes[place * size + byte] = Math.floor(code / 256 ** byte) % 256;
  });
  return bytes;
}
