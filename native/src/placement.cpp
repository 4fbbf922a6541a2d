// Checks the operands of tcgen05.mma, and decodes addresses and descriptors.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "checks.h"
#include "shared.h"
#include "tcgen05.h"

namespace sptc {

namespace {

// Smallest value of a shared-memory descriptor; addresses in tensor memory are smaller.
constexpr uint64_t SMALLEST_DESCRIPTOR = uint64_t(1) << 46;

void require_zero(uint64_t value, const std::string &sentence) {
    if (value) throw Error(SPTC_SUPERFLUOUS, sentence);
}

void check_options(const sptc_tcgen05_operands &arguments, const OpcodeOn &opcode) {
    const std::string suffix = " of " + spelled(opcode);
    check_range("metadata", arguments.metadata, SPTC_STRICT, SPTC_SILICON);
    check_range("enable_input_d", arguments.enable_input_d, 0, 1);
    if (arguments.scale_input_d && !opcode.shapes->scales_input_d)
        throw Error(SPTC_SUPERFLUOUS, "scale_input_d", suffix, " must be 0, not ", arguments.scale_input_d,
                    "; only kinds f16 and tf32 have other values.");
    check_range(("scale_input_d" + suffix).c_str(), arguments.scale_input_d, 0, 15);
    const bool disables = std::any_of(std::begin(arguments.disable_output_lane),
                                      std::end(arguments.disable_output_lane), [](uint32_t word) { return word != 0; });
    if (disables && (opcode.weight_stationary || opcode.scale_size))
        throw Error(SPTC_SUPERFLUOUS, spelled(opcode), " takes no disable_output_lane.");
    if (disables && opcode.cta_group == 2)
        throw Error(SPTC_SUPERFLUOUS, "disable_output_lane", suffix,
                    " must be left out: no public source states which "
                    "of its eight numbers belong to which CTA.");
    if (!opcode.sparse) require_zero(arguments.e, spelled(opcode) + " is dense and takes no metadata operand e.");
    if (!opcode.weight_stationary)
        require_zero(arguments.zero_column_mask, spelled(opcode) + " takes no zero_column_mask, which only '.ws' has.");
}

// In a tensor-memory layout that uses half of the lanes, checks that all operands start at the same lane.
void check_alignment(const OpcodeOn &opcode, const Layout &layout,
                     const std::vector<std::pair<const char *, uint64_t>> &addresses) {
    if (!layout.half_lanes) return;
    std::set<int> lanes;
    std::string lanes_used;
    for (const auto &[name, address] : addresses) {
        const int lane = lane_of(name, address);
        lanes.insert(lane);
        lanes_used += (lanes_used.empty() ? "" : ", ") + std::string(name) + " at " + std::to_string(lane);
    }
    if (lanes.size() > 1)
        refuse_value("the operands of ", spelled(opcode), " in tensor memory must start at the same lane, not ",
                     lanes_used, ".");
}

// Returns the bit addresses of the elements of A or B in shared memory. The shift of the zero-column mask skips columns
// at the start of B.
std::vector<int32_t> shared_places(const char *name, uint64_t value, const TensorInstruction &placed, size_t bytes) {
    const Instruction &instruction = placed.descriptor.instruction;
    const Form &form = *instruction.form;
    const bool is_a = *name == 'a';
    const bool transposed = is_a ? placed.descriptor.transpose_a : placed.descriptor.transpose_b;
    const Format &format = is_a ? instruction.a() : instruction.b();
    const Descriptor descriptor = decode_descriptor(value, Family::TCGEN05, name);
    const int element_bits = format.bits + format.ignored_low_bits;
    const bool needs_atoms = transposed && element_bits == 32;
    if ((descriptor.swizzle->atom_bytes == 32) != needs_atoms)
        refuse_value("descriptor ", name, " of ", spelled(placed.opcode), needs_atoms ? " must" : " must not",
                     " use the swizzle '128B with 32B atoms' for ", transposed ? "transposed" : "K-major", " .",
                     format.name, ".");
    const Extent of_a{0, placed.descriptor.layout->rows, form.stored_k, element_bits, form.unit_a, transposed};
    const Extent of_b{placed.mask.shift, instruction.n / placed.opcode.cta_group, form.k, element_bits, form.unit_b,
                      transposed};
    return bit_addresses(descriptor, is_a ? of_a : of_b, bytes, name);
}

TensorMap scales(const char *name, uint32_t address, const TensorInstruction &placed, int lines, int scale_id,
                 int parts) {
    if (placed.opcode.scale_size) return scale_map(name, lines, placed.opcode.scale_size, scale_id, address, parts);
    require_zero(address, spelled(placed.opcode) + " has no block scales and takes no " + name + ".");
    return {};
}

void check_overlap(const TensorInstruction &placed) {
    std::vector<bool> taken(size_t(TENSOR_WORDS), false);
    for (int32_t word : placed.d.words) taken[size_t(word)] = true;
    for (const auto &[name, where] : placed.inputs())
        for (int32_t copy : where->copies)
            for (int32_t word : where->words)
                if (taken[size_t(word + copy * TENSOR_COLUMNS)])
                    refuse_value(name, " of ", spelled(placed.opcode), " must not overlap d in tensor memory.");
}

void place_images(const sptc_tcgen05_operands &arguments, TensorInstruction &placed) {
    const int ctas = placed.opcode.cta_group;
    check_count("images", arguments.images);
    const size_t bytes = product("tmem", {arguments.images, ctas, TENSOR_WORDS, 4});
    require_bytes(arguments.tmem, bytes, "tmem");
    require_bytes(arguments.result, bytes, "result");
    placed.images = arguments.images;
    placed.tmem = static_cast<const uint32_t *>(arguments.tmem.data);
    placed.result = static_cast<uint32_t *>(arguments.result.data);
    placed.smem = static_cast<const uint8_t *>(arguments.smem.data);
    placed.smem_stride = arguments.smem_stride;
    const size_t image = image_bytes(arguments.smem, arguments.smem_stride, arguments.images);
    if (image % size_t(ctas))
        refuse_value("an image in smem must be a multiple of ", ctas, " bytes, an equal share for each CTA, not ",
                     image, ".");
    placed.smem_bytes = image / size_t(ctas);
}

}  // namespace

TensorInstruction placed(const sptc_tcgen05_operands &arguments, const OpcodeOn &opcode) {
    TensorInstruction placed{};
    placed.opcode = opcode;
    placed.descriptor = decode_instruction_descriptor(opcode, arguments.idesc);
    const InstructionDescriptor &descriptor = placed.descriptor;
    const Layout &layout = *descriptor.layout;
    const std::string name = spelled(opcode);
    check_options(arguments, opcode);
    placed.adds = arguments.enable_input_d != 0;
    placed.scale_input_d = arguments.scale_input_d;
    placed.policy = Policy(arguments.metadata);
    for (int lane = 0; lane < TENSOR_LANES; ++lane)
        placed.disabled[lane] = arguments.disable_output_lane[lane / 32] >> lane % 32 & 1;
    place_images(arguments, placed);
    placed.mask = decode_column_mask(arguments.zero_column_mask, opcode, descriptor);
    const bool a_is_shared = arguments.a >= SMALLEST_DESCRIPTOR;
    if (opcode.shifts_a && a_is_shared)
        refuse_value("a of ", name, " must be in tensor memory, where '.ashift' shifts it, not in shared memory.");
    placed.d = accumulator_map(descriptor, arguments.d);
    std::vector<std::pair<const char *, uint64_t>> addresses = {{"d", arguments.d}};
    if (opcode.sparse) addresses.emplace_back("e", arguments.e);
    if (!a_is_shared) addresses.emplace_back("a", arguments.a);
    check_alignment(opcode, layout, addresses);
    if (a_is_shared)
        placed.a_shared = shared_places("a", arguments.a, placed, placed.smem_bytes);
    else if (descriptor.transpose_a)
        refuse_value("a of ", name, " must be in shared memory to be transposed, not in tensor memory.");
    else
        placed.a = a_map(descriptor, arguments.a);
    placed.b_shared = shared_places("b", arguments.b, placed, placed.smem_bytes);
    if (opcode.sparse) placed.e = metadata_map(descriptor, arguments.e);
    placed.scale_a = scales("scale_a", arguments.scale_a, placed, layout.rows, descriptor.scale_id_a, 1);
    placed.scale_b =
        scales("scale_b", arguments.scale_b, placed, descriptor.instruction.n, descriptor.scale_id_b, layout.parts);
    check_overlap(placed);
    return placed;
}

}  // namespace sptc
