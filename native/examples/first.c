/* A small program that computes one mma.sp: every element of D is the sum of sixteen kept products, each of them 2. */
#include <stdio.h>
#include <string.h>

#include "sptc.h"

#define THREADS 32
#define REGISTERS 4

static void fill(uint32_t *registers, size_t count, uint32_t value) {
    for (size_t index = 0; index < count; ++index) registers[index] = value;
}

int main(void) {
    static uint32_t a[THREADS * REGISTERS], b[THREADS * REGISTERS], c[THREADS * REGISTERS], e[THREADS];
    static uint32_t d[THREADS * REGISTERS];
    fill(a, THREADS * REGISTERS, 0x3C003C00); /* every stored element of A is 1.0; a register holds two f16 */
    fill(b, THREADS * REGISTERS, 0x40004000); /* every element of B is 2.0 */
    fill(e, THREADS, 0x44444444);             /* metadata: elements 0 and 1 of every four are kept */

    sptc_instruction *instruction = NULL;
    sptc_status status = sptc_open(SPTC_ABI, "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
                                   "sm_90", &instruction);
    if (status == SPTC_OK) {
        sptc_mma_operands operands;
        memset(&operands, 0, sizeof operands);
        operands.tiles = 1;
        operands.a.data = a, operands.a.bytes = sizeof a;
        operands.b.data = b, operands.b.bytes = sizeof b;
        operands.c.data = c, operands.c.bytes = sizeof c;
        operands.e.data = e, operands.e.bytes = sizeof e;
        operands.d.data = d, operands.d.bytes = sizeof d;
        status = sptc_mma(instruction, &operands, 1);
    }
    if (status != SPTC_OK) fprintf(stderr, "%s\n", sptc_last_error(instruction));
    sptc_close(instruction);
    if (status != SPTC_OK) return 1;

    for (size_t index = 0; index < THREADS * REGISTERS; ++index) {
        float result;
        memcpy(&result, &d[index], sizeof result);
        if (result != 32.0f) return 1;
    }
    puts("every element of D is 32");
    return 0;
}
