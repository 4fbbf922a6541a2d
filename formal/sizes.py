"""Sizes of warps, matrices and memories from PTX ISA 9.7.14 to 9.7.16, and the number of instruction slots.

No size is read from the hardware: a claim about all registers, rows or columns covers as many as PTX has.
"""

__all__ = [
    "ADDRESS_BITS",
    "COLUMNS",
    "COLUMN_BITS",
    "CORE_MATRICES",
    "LANES",
    "PANEL_ROWS",
    "REGISTERS",
    "ROWS",
    "SLOTS",
    "WARPS",
]

#: Number of rows and of columns in the output of a warp's instruction of shape m16n8.
ROWS, COLUMNS = 16, 8
#: Number of lanes in a warp, and maximum number of registers per lane for A, B, C or D of an instruction.
LANES, REGISTERS = 32, 4
#: Number of warps in a warpgroup.
WARPS = 4
#: Number of rows (16 bytes each) in a core matrix, and maximum number of core matrices along K in eight columns of B.
PANEL_ROWS, CORE_MATRICES = 8, 4
#: Width in bits of an address in a matrix descriptor: an 18-bit byte address in units of 16 bytes.
ADDRESS_BITS = 14
#: Width in bits of a column address in tensor memory, which has 512 columns.
COLUMN_BITS = 9
#: Number of instruction slots. One instruction is multiplied while the operands of the next instruction arrive.
SLOTS = 2
