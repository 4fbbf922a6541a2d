#include "shared.h"

#include <algorithm>

#include "instruction.h"
#include "sptc.h"
#include "text.h"

namespace sptc {

namespace {

constexpr int UNIT_BYTES = 16, FIELD_BITS = 14, BASE_OFFSET_BIT = 49;
constexpr int64_t ADDRESS_SPACE = int64_t(UNIT_BYTES) << FIELD_BITS;

int64_t field(uint64_t value, int bit) { return int64_t(value >> bit & ((1u << FIELD_BITS) - 1)) * UNIT_BYTES; }

// Returns the byte address of a 16-byte unit in a canonical layout of the PTX ISA. `unit` is the index of the unit in
// the contiguous dimension of the matrix, `outer` the index in the strided dimension.
int64_t unit_address(const Descriptor &descriptor, int outer, int unit, bool mn_major) {
    const Swizzle &swizzle = *descriptor.swizzle;
    const int units = swizzle.row_bytes / UNIT_BYTES, rows = swizzle.pattern_rows;
    int64_t leading = descriptor.leading_offset, stride = descriptor.stride_offset;
    if (mn_major && units == 1) std::swap(leading, stride);
    const int64_t address = descriptor.start + outer % rows * swizzle.row_bytes + outer / rows * stride +
                            unit / units * leading + unit % units * UNIT_BYTES;
    const int64_t atoms = swizzle.row_bytes / swizzle.atom_bytes;
    return address ^ (((address >> 7) - descriptor.base_offset) & (atoms - 1)) * swizzle.atom_bytes;
}

}  // namespace

Descriptor decode_descriptor(uint64_t value, Family family, const std::string &name) {
    const Generation &generation = GENERATIONS[family == Family::WGMMA ? 0 : 1];
    const std::string subject = "descriptor " + name + ", " + hexadecimal(value, 16) + ",";
    const uint64_t offset_mask = (uint64_t(1) << FIELD_BITS) - 1,
                   fixed_mask = (uint64_t(1) << generation.fixed_bits) - 1;
    const uint64_t defined = offset_mask | offset_mask << 16 | offset_mask << 32 | uint64_t(7) << BASE_OFFSET_BIT |
                             fixed_mask << generation.fixed_bit | ~uint64_t(0) << generation.swizzle_bit;
    if (value & ~defined)
        refuse_value(subject, " sets the reserved bits ", hexadecimal(value & ~defined, 16), ", which must be 0.");
    if ((value >> generation.fixed_bit & fixed_mask) != uint64_t(generation.fixed_value))
        refuse_value(subject, " must hold ", generation.fixed_value, " in the ", generation.fixed_bits,
                     " bits from bit ", generation.fixed_bit, " on.");
    const int swizzle = generation.swizzles[value >> generation.swizzle_bit];
    if (swizzle < 0) refuse_value(subject, " has the undefined swizzle mode ", value >> generation.swizzle_bit, ".");
    return {field(value, 0), field(value, 16), field(value, 32), int(value >> BASE_OFFSET_BIT & 7), &SWIZZLES[swizzle]};
}

uint64_t encode_descriptor(int64_t start, int64_t leading_offset, int64_t stride_offset, const std::string &swizzle,
                           int base_offset, Family family) {
    const Generation &generation = GENERATIONS[family == Family::WGMMA ? 0 : 1];
    const struct {
        const char *name;
        int64_t bytes;
        int bit;
    } fields[] = {{"start", start, 0}, {"leading offset", leading_offset, 16}, {"stride offset", stride_offset, 32}};
    uint64_t value = uint64_t(generation.fixed_value) << generation.fixed_bit;
    for (const auto &each : fields) {
        if (each.bytes % UNIT_BYTES || each.bytes >= ADDRESS_SPACE)
            refuse_value("the ", each.name, " of a descriptor must be a multiple of ", UNIT_BYTES, " bytes from 0 to ",
                         ADDRESS_SPACE - UNIT_BYTES, ", not ", each.bytes, ".");
        value |= uint64_t(each.bytes / UNIT_BYTES) << each.bit;
    }
    if (base_offset < 0 || base_offset > 7)
        refuse_value("the base offset of a descriptor must be 0 to 7, not ", base_offset, ".");
    std::string names;
    for (uint64_t code = 0; code < 8; ++code) {
        if (generation.swizzles[code] < 0) continue;
        const std::string name = SWIZZLES[generation.swizzles[code]].name;
        if (name == swizzle) return value | uint64_t(base_offset) << BASE_OFFSET_BIT | code << generation.swizzle_bit;
        names += (names.empty() ? "" : ", ") + name;
    }
    refuse_value("the swizzle of a descriptor must be ", names, ", not ", quoted(swizzle), ".");
}

std::vector<int32_t> bit_addresses(const Descriptor &descriptor, const Extent &extent, size_t bytes,
                                   const std::string &name) {
    const int64_t end = int64_t(std::min<size_t>(bytes, size_t(ADDRESS_SPACE)));
    std::vector<int32_t> addresses;
    addresses.reserve(size_t(extent.lines) * size_t(extent.k));
    for (int line = extent.first_line; line < extent.first_line + extent.lines; ++line)
        for (int index = 0; index < extent.k; ++index) {
            const int inner = extent.mn_major ? line : index, outer = extent.mn_major ? index : line;
            const int64_t unit = unit_address(descriptor, outer, inner / extent.unit_elements, extent.mn_major);
            const int64_t bit = 8 * unit + int64_t(inner % extent.unit_elements) * extent.element_bits;
            const int64_t last = (bit + extent.element_bits - 1) / 8;
            if (last >= end)
                throw Error(SPTC_SHORT_BUFFER, "descriptor ", name, " reaches byte ", last, ", but ",
                            int64_t(bytes) > end ? "descriptors address " : "smem has ", end, " bytes.");
            addresses.push_back(int32_t(bit));
        }
    return addresses;
}

}  // namespace sptc
