/* Example of a GPU simulator that executes wgmma.mma_async.sp with libsptc: it passes the operands of the warpgroup to
 * sptc_wgmma(), and receives D.
 *
 * A simulator opens one handle for each instruction of the simulated program. It passes the registers of the warpgroup
 * and the shared memory of its thread block without conversion. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sptc.h"

enum { THREADS = 128, D_REGISTERS = 8, A_REGISTERS = 4, SHARED_BYTES = 1024 };

/* Registers of a simulated warpgroup, and shared memory of its thread block. */
struct warpgroup {
    uint32_t d[THREADS][D_REGISTERS], a[THREADS][A_REGISTERS], e[THREADS];
    uint8_t shared[SHARED_BYTES];
};

/* Executes one wgmma.mma_async.sp of a simulated warpgroup. `b_descriptor` is the matrix descriptor of B that the
 * simulated program computed. */
static sptc_status execute_wgmma_sp(sptc_instruction *instruction, struct warpgroup *group, uint64_t b_descriptor,
                                    int selector, int scale_d) {
    sptc_wgmma_operands operands;
    memset(&operands, 0, sizeof operands);
    operands.tiles = 1;
    operands.c.data = group->d, operands.c.bytes = sizeof group->d;
    operands.a.data = group->a, operands.a.bytes = sizeof group->a;
    operands.b_descriptor = b_descriptor;
    operands.e.data = group->e, operands.e.bytes = sizeof group->e;
    operands.selector = selector;
    operands.metadata = SPTC_SILICON; /* compute undefined metadata as the hardware does */
    operands.smem.data = group->shared, operands.smem.bytes = sizeof group->shared;
    operands.scale_d = scale_d;
    operands.imm_scale_a = operands.imm_scale_b = 1;
    operands.d.data = group->d, operands.d.bytes = sizeof group->d;
    return sptc_wgmma(instruction, &operands, 1);
}

int main(void) {
    sptc_instruction *instruction = NULL;
    struct warpgroup *group = calloc(1, sizeof *group);
    sptc_status status =
        sptc_open(SPTC_ABI, "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16", "sm_90", &instruction);
    if (!group) return 1;
    for (int thread = 0; thread < THREADS; ++thread) {
        for (int index = 0; index < A_REGISTERS; ++index) group->a[thread][index] = 0x3C003C00; /* A is 1.0 */
        group->e[thread] = 0x44444444;
    }
    for (int index = 0; index < SHARED_BYTES; index += 2) group->shared[index + 1] = 0x40; /* B is 2.0 */
    uint64_t descriptor = 0; /* descriptor of B: address 0, leading offset 256 bytes, stride offset 128 bytes */
    if (status == SPTC_OK) status = sptc_encode_descriptor(instruction, 0, 256, 128, "none", 0, &descriptor);
    for (int times = 0; times < 2 && status == SPTC_OK; ++times)
        status = execute_wgmma_sp(instruction, group, descriptor, 0, times > 0);
    float result;
    memcpy(&result, &group->d[127][7], sizeof result);
    if (status != SPTC_OK)
        fprintf(stderr, "%s\n", sptc_last_error(instruction));
    else
        printf("after two instructions D is %g\n", result);
    sptc_close(instruction);
    free(group);
    return status != SPTC_OK || result != 64.0f;
}
