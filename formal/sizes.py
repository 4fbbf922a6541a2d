"""Sizes of warps, panels and memories as PTX ISA 9.7.14 to 9.7.16 has them, and how many instructions a top buffers.

No size of the hardware is asked: a claim about all registers, rows or columns is about as many as the manual says.
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
#: Lanes of a warp, and the most registers of one that hold A, B, C or D of an instruction.
LANES, REGISTERS = 32, 4
#: Warps of a warpgroup.
WARPS = 4
#: Rows of a core matrix, each of 16 bytes, and core matrices that a panel of B holds along K at most.
PANEL_ROWS, CORE_MATRICES = 8, 4
#: Of a matrix descriptor's addresses, which are 18 bits of bytes in units of 16.
ADDRESS_BITS = 14
#: Of the 512 columns of a tensor memory.
COLUMN_BITS = 9
#: Instructions whose operands are fetched or there at once: one is multiplied while those of the next arrive.
SLOTS = 2
