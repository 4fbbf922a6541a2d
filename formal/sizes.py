"""Sizes of warps, panels and memories from PTX ISA 9.7.14 to 9.7.16, and the number of instructions in a top.

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

#: Outputs of a warp's instruction, m16n8.
ROWS, COLUMNS = 16, 8
#: Lanes of a warp, and the largest number of registers of a lane that hold A, B, C or D of an instruction.
LANES, REGISTERS = 32, 4
#: Number of warps in a warpgroup.
WARPS = 4
#: Rows of a core matrix, each of 16 bytes, and the largest number of core matrices of a panel of B along K.
PANEL_ROWS, CORE_MATRICES = 8, 4
#: Width of the addresses in a matrix descriptor: 18 bits of bytes, in units of 16 bytes.
ADDRESS_BITS = 14
#: Width of a column address in tensor memory, which has 512 columns.
COLUMN_BITS = 9
#: Instructions that are held at once: one is multiplied while the operands of the next arrive.
SLOTS = 2
