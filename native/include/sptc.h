/* C interface of libsptc, which computes sparse and dense tensor-core instructions bit for bit.
 *
 * A handle represents one instruction on one architecture. Functions return a status; if the status is not SPTC_OK,
 * sptc_last_error() states the reason in one sentence. Functions do not keep pointers to their arguments, and a handle
 * contains all state: threads may use different handles at the same time, but no handle may be used by two threads at
 * the same time.
 *
 * A matrix is an array of codes (bit patterns of elements), row by row; the matrices of a batch follow each other. An
 * element of A or B has 1, 2 or 4 bytes (operand_bytes of sptc_shape); a 4-bit element is in the low half of a byte.
 * The calling thread must round to nearest and must not flush subnormal numbers to zero: the modes in which every
 * process starts.
 */
#ifndef SPTC_H
#define SPTC_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SPTC_API __attribute__((visibility("default")))
#else
#define SPTC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the C interface that a caller passes to sptc_open(), which compares it with the library's version. */
#define SPTC_ABI 1

typedef enum sptc_status {
    SPTC_OK = 0,
    SPTC_NO_MEMORY = 1,           /* not enough memory; the only failure without a message */
    SPTC_NULL = 2,                /* a required pointer is NULL */
    SPTC_FOREIGN_ABI = 3,         /* the caller was compiled with an sptc.h of another version */
    SPTC_NO_INSTRUCTION = 4,      /* the text is not an instruction, or the function does not support the instruction */
    SPTC_NO_ARCHITECTURE = 5,     /* the architecture is unknown, or does not have the instruction */
    SPTC_NO_KERNELS = 6,          /* no kernels have the given name, or this processor cannot run them */
    SPTC_BAD_SHAPE = 7,           /* the instruction cannot compute the given matrix shape or number of tiles */
    SPTC_SHORT_BUFFER = 8,        /* an array is too small */
    SPTC_BAD_VALUE = 9,           /* a number or a name is not an accepted value */
    SPTC_SUPERFLUOUS = 10,        /* an operand was passed that the instruction does not have */
    SPTC_UNDEFINED_METADATA = 11, /* the metadata has a nibble that the instruction leaves undefined */
    SPTC_FAILED = 12              /* the library failed for another reason, which sptc_last_error() states */
} sptc_status;

typedef struct sptc_instruction sptc_instruction;

/* Opens an instruction, for example "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32" on "sm_90".
 * For sptc_tcgen05(), open an opcode such as "tcgen05.mma.sp.cta_group::1.kind::f16"; shape and types are in the
 * instruction descriptor. For sptc_multiply(), add shape and types in parentheses; the number of CTAs may then be
 * omitted: "tcgen05.mma.sp.kind::f16 (m128n8k32.f32.f16.f16)".
 * The text is a PTX name with every qualifier that PTX requires. Of the forms that Python accepts, names without
 * ".sync.aligned" and ".row.col", lines with operands, and words of a name are refused.
 * An architecture is any target of the assembler, such as "sm_90a". Pass SPTC_ABI as `abi`. Call sptc_close() on
 * `*instruction` whatever the status is; `*instruction` is NULL if there was not enough memory. */
SPTC_API sptc_status sptc_open(int abi, const char *text, const char *architecture, sptc_instruction **instruction);

/* Closes a handle; NULL has no effect. */
SPTC_API void sptc_close(sptc_instruction *instruction);

/* Returns one sentence that states why the last call with this handle failed, or an empty text if the call succeeded.
 * The text is valid until the next call with this handle. */
SPTC_API const char *sptc_last_error(const sptc_instruction *instruction);

/* Returns the PTX text of the instruction, including default qualifiers; empty if no instruction was opened. The text
 * is valid as long as the handle. */
SPTC_API const char *sptc_text(const sptc_instruction *instruction);

/* Chooses the kernels (multiplication routines for one instruction set of the processor) that this handle uses:
 * "portable", "avx2", "avx512", or "" for the fastest kernels on this processor. */
SPTC_API sptc_status sptc_choose_kernels(sptc_instruction *instruction, const char *name);

/* Changes the numerics of an instruction, to compute the results of a datapath that differs from the architecture's:
 * `products`, kept products per step (a power of two up to 32); `alignment_bits`, bits kept below the largest exponent
 * (1 to 25); `zero_exponent`, floor of the largest exponent (-282 to 4); `group`, products that are summed exactly
 * before truncation (16, or 4); `rounding` of a step: "RZ-f32", "RZ-E8M13", "RNE-f32" or, for an f16 result, "RNE-f16".
 * The block-scaled kinds mxf4 and mxf4nvf4 accept changes of floor, group and rounding only. Other float instructions
 * accept changes of all parameters but the group. Integer instructions and emulated fp8 accept no change. */
SPTC_API sptc_status sptc_set_numerics(sptc_instruction *instruction, int products, int alignment_bits,
                                       int zero_exponent, int group, const char *rounding);

typedef struct sptc_shape {
    int32_t m, n, k;
    int32_t stored_k;  /* stored columns of A: k, or k / 2 if the instruction is sparse */
    int32_t chunks;    /* metadata nibbles per row of A; 0 if the instruction is dense */
    int32_t selectors; /* number of values of the sparsity selector */
    int32_t threads;   /* threads whose registers hold operands: mma 32, wgmma 128, tcgen05 0 */
    int32_t a_registers, b_registers, d_registers; /* registers per thread; 0 if an operand is never in registers */
    int32_t operand_bytes;                         /* bytes of an element of A or B in a matrix */
    int32_t result_bytes;                          /* bytes of an element of C or D */
    int32_t operand_bits;                          /* bits of an element of A or B in a register */
    int32_t scales;                                /* block scales per row of A or column of B; 0 if there are none */
    int32_t defined_nibbles; /* bit i is set if metadata nibble i is defined; 0 if the instruction is dense */
} sptc_shape;

/* Returns the shape of an instruction; fails for an opcode of tcgen05 without shape. */
SPTC_API sptc_status sptc_get_shape(sptc_instruction *instruction, sptc_shape *shape);

/* An input array and its size in bytes; NULL and 0 if absent. */
typedef struct sptc_input {
    const void *data;
    size_t bytes;
} sptc_input;

typedef struct sptc_output {
    void *data;
    size_t bytes;
} sptc_output;

typedef struct sptc_matrices {
    int64_t batch, m, n, k; /* k must be a multiple of the instruction's k; m and n are arbitrary */
    sptc_input a;           /* [batch][m][stored columns along k] */
    sptc_input b;           /* [batch][k][n] */
    sptc_input c;           /* [batch][m][n] */
    sptc_input nibbles; /* metadata nibbles [batch][m][chunks along k], one per byte; undefined nibbles are computed */
    sptc_input scale_a; /* block scales of A, [batch][m][scales along k] bytes, if the instruction has them */
    sptc_input scale_b; /* block scales of B, [batch][n][scales along k] bytes, if the instruction has them */
    sptc_output d;      /* results [batch][m][n]; may be the array of c */
} sptc_matrices;

/* Computes D = A B + C by a chain of the instruction along K, on `threads` threads (1 to 1024). */
SPTC_API sptc_status sptc_multiply(sptc_instruction *instruction, const sptc_matrices *matrices, int threads);

/* Policy for metadata nibbles that the instruction leaves undefined. */
typedef enum sptc_metadata_policy {
    SPTC_STRICT = 0,   /* refuse every undefined nibble with SPTC_UNDEFINED_METADATA */
    SPTC_SOFTWARE = 1, /* accept nibble 0 if all stored values of its chunk are zero, as pruning libraries write it */
    SPTC_SILICON = 2   /* compute every nibble as the multiplexers of the hardware do */
} sptc_metadata_policy;

/* Operands of mma in the 32 threads of each warp: 32-bit registers [tile][thread][register]. */
typedef struct sptc_mma_operands {
    int64_t tiles; /* number of warps; 0 is accepted: nothing is computed, and the call returns SPTC_OK */
    sptc_input a, b, c;
    sptc_input e;                               /* metadata registers [tile][thread], if sparse */
    int32_t selector;                           /* sparsity selector */
    int32_t metadata;                           /* policy for undefined metadata: an sptc_metadata_policy */
    sptc_input scale_a, scale_b;                /* block scale registers [tile][thread], if block-scaled */
    int32_t byte_a, thread_a, byte_b, thread_b; /* byte-id and thread-id of PTX: position of the block scales */
    sptc_output d;                              /* result registers; may be the array of c */
} sptc_mma_operands;

/* Computes tiles of mma or mma.sp on `threads` threads. If metadata is refused, nothing is written. */
SPTC_API sptc_status sptc_mma(sptc_instruction *instruction, const sptc_mma_operands *operands, int threads);

/* Operands of wgmma in the 128 threads of each warpgroup, and in shared memory, whose first byte has address 0. */
typedef struct sptc_wgmma_operands {
    int64_t tiles; /* number of warpgroups; 0 is accepted: nothing is computed, and the call returns SPTC_OK */
    sptc_input c;  /* accumulators (D before the instruction); may be absent if scale_d is 0 */
    sptc_input a;  /* registers of A; absent if A is in shared memory */
    uint64_t a_descriptor, b_descriptor;
    sptc_input e;
    int32_t selector;
    int32_t metadata;
    sptc_input smem;
    size_t smem_stride;               /* bytes between the images of consecutive tiles; 0: all tiles share one image */
    int32_t scale_d;                  /* 1: D = A B + C; 0: D = A B */
    int32_t imm_scale_a, imm_scale_b; /* factors of A and B: 1 or, for floats only, -1; 0 is refused */
    int32_t imm_trans_a, imm_trans_b; /* 1 for an MN-major operand in shared memory (16-bit elements only), else 0 */
    sptc_output d;
} sptc_wgmma_operands;

/* Encodes a descriptor of a matrix in shared memory for wgmma or tcgen05. Start address, leading offset and stride offset
 * are in bytes: multiples of 16 below 2**18. `swizzle` is "none", "32B", "64B" or "128B", for tcgen05 also "128B with 32B
 * atoms"; `base_offset` is 0 to 7. */
SPTC_API sptc_status sptc_encode_descriptor(sptc_instruction *instruction, uint32_t start, uint32_t leading_offset,
                                            uint32_t stride_offset, const char *swizzle, int base_offset,
                                            uint64_t *descriptor);

/* Computes tiles of wgmma or wgmma.sp on `threads` threads. If metadata is refused, nothing is written. */
SPTC_API sptc_status sptc_wgmma(sptc_instruction *instruction, const sptc_wgmma_operands *operands, int threads);

/* Operands of tcgen05.mma. An address in tensor memory is lane << 16 | column. An operand that is absent is 0. */
typedef struct sptc_tcgen05_operands {
    int64_t images;            /* number of memory images; if it is 0, nothing is computed and SPTC_OK returned */
    sptc_input tmem;           /* tensor memory: 32-bit words [image][CTA of the group][128 lanes][512 columns] */
    sptc_input smem;           /* shared memory: [image][CTA] bytes; the first byte of each CTA has address 0 */
    size_t smem_stride;        /* bytes from one image to the next, an equal share per CTA; 0: all share one image */
    uint64_t a;                /* A: shared-memory descriptor (2**46 or more), or address in tensor memory */
    uint64_t b;                /* B: shared-memory descriptor; each CTA of a pair has half of the columns */
    uint64_t zero_column_mask; /* descriptor of the zero-column mask; only with .ws */
    uint32_t d, e, scale_a, scale_b; /* addresses in tensor memory; e is metadata, if sparse */
    uint32_t idesc;                  /* instruction descriptor; Python's encode_instruction_descriptor encodes it */
    uint32_t disable_output_lane[4]; /* mask of the lanes of D that are not written */
    int32_t enable_input_d;          /* 1: D = A B + D; 0: D = A B */
    int32_t scale_input_d;           /* 0 to 15: D is multiplied by 2**-scale_input_d before it is added */
    int32_t metadata;                /* policy for undefined metadata: an sptc_metadata_policy */
    sptc_output result; /* tensor memory after the instruction: tmem, or an array that does not overlap it */
} sptc_tcgen05_operands;

/* Computes tcgen05.mma, dense or sparse, with .ws or without, on each image of tensor memory and shared memory, on
 * `threads` threads. If one image is refused, no image is written. */
SPTC_API sptc_status sptc_tcgen05(sptc_instruction *instruction, const sptc_tcgen05_operands *operands, int threads);

/* Gathers metadata from the registers e, [tile][thread]. Writes bytes [tile][m][chunks]: to `nibbles` each nibble, to
 * `defined` whether the instruction defines it (1 or 0). Each of these two outputs may be absent. */
SPTC_API sptc_status sptc_metadata(sptc_instruction *instruction, int64_t tiles, sptc_input e, int32_t selector,
                                   sptc_output nibbles, sptc_output defined);

#ifdef __cplusplus
}
#endif

#endif
