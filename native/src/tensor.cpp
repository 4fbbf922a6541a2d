#include "tensor.h"

#include <algorithm>

#include "sptc.h"

namespace sptc {

namespace {

int column_of(uint64_t address) { return int(address & 0xFFFF); }

// Returns the lane of a tensor-memory address; throws if operands cannot start at this lane in layout `layout`.
int base_lane(const char *name, uint64_t address, const Layout &layout) {
    const int lane = lane_of(name, address);
    if (lane == 0 || (layout.half_lanes && lane == PARTITION / 2)) return lane;
    const std::string other = layout.half_lanes ? " or " + std::to_string(PARTITION / 2) : "";
    refuse_value(name, " must start at lane 0", other, " of tensor memory in layout ", layout.name, ", not ", lane,
                 ".");
}

// Builds a map of matrix elements to tensor memory, element by element.
class Builder {
  public:
    Builder(const char *name, int places, int lane, int column, int bits)
        : name_(name), places_(TENSOR_PLACES[places]), lane_(lane), column_(column) {
        map_.bits = bits;
        map_.copies = {0};
    }

    void add(int row, int column, int lanes_further = 0, int low_bit = 0) {
        const int lane =
            lane_ + lanes_further + sum_of_bits(places_.lane_of_row, row) + sum_of_bits(places_.lane_of_column, column);
        const int at =
            column_ + sum_of_bits(places_.column_of_row, row) + sum_of_bits(places_.column_of_column, column);
        low_bit += sum_of_bits(places_.bit_of_row, row) + sum_of_bits(places_.bit_of_column, column);
        last_ = std::max(last_, at);
        map_.words.push_back(lane * TENSOR_COLUMNS + at);
        map_.low_bits.push_back(uint8_t(low_bit));
    }

    void add_copies(int count, int lanes_apart) {
        for (int copy = 1; copy < count; ++copy) map_.copies.push_back(copy * lanes_apart);
    }

    TensorMap done() {
        if (last_ >= TENSOR_COLUMNS)
            refuse_value(name_, " at column ", column_, " of tensor memory reaches column ", last_,
                         ", beyond the last column, ", TENSOR_COLUMNS - 1, ".");
        return std::move(map_);
    }

  private:
    const char *name_;
    const TensorPlaces &places_;
    int lane_, column_, last_ = 0;
    TensorMap map_;
};

}  // namespace

int lane_of(const char *name, uint64_t address) {
    if (address >> 32) refuse_value(name, " must be a 32-bit address of tensor memory, not ", address, ".");
    const int lane = int(address >> 16), column = column_of(address);
    if (lane >= TENSOR_LANES || column >= TENSOR_COLUMNS)
        refuse_value(name, " must be an address of lane 0 to ", TENSOR_LANES - 1, " and column 0 to ",
                     TENSOR_COLUMNS - 1, " of tensor memory, not of lane ", lane, " and column ", column, ".");
    return lane;
}

TensorMap accumulator_map(const InstructionDescriptor &descriptor, uint64_t address) {
    const Layout &layout = *descriptor.layout;
    const Instruction &instruction = descriptor.instruction;
    Builder builder("d", layout.d, base_lane("d", address, layout), column_of(address), instruction.d().bits);
    const int width = instruction.n / layout.parts;
    for (int row = 0; row < layout.rows; ++row)
        for (int column = 0; column < instruction.n; ++column)
            builder.add(row, column % width, column / width * layout.rows);
    return builder.done();
}

TensorMap a_map(const InstructionDescriptor &descriptor, uint64_t address) {
    const Layout &layout = *descriptor.layout;
    const Instruction &instruction = descriptor.instruction;
    const Form &form = *instruction.form;
    const int bits = form.container_bits, stored_bits = instruction.a().bits;
    const std::string must =
        "operand A of " + spelled(instruction) + " must be in shared memory: no public source states ";
    int log2 = 0;
    while (4 << log2 < bits) ++log2;
    if (layout.a[log2] < 0)
        refuse_value(must, "the positions of ", bits, "-bit elements in tensor memory for '.ws' with M = ", layout.rows,
                     ".");
    if (stored_bits < bits && bits == 8)
        refuse_value(must, "the position of a ", stored_bits,
                     "-bit element within a byte of tensor memory; only figures show it.");
    Builder builder("a", layout.a[log2], base_lane("a", address, layout), column_of(address), bits);
    for (int row = 0; row < layout.rows; ++row)
        for (int k = 0; k < form.stored_k; ++k) builder.add(row, k);
    builder.add_copies(layout.parts, layout.rows);
    return builder.done();
}

TensorMap metadata_map(const InstructionDescriptor &descriptor, uint64_t address) {
    const Layout &layout = *descriptor.layout;
    const Instruction &instruction = descriptor.instruction;
    const Form &form = *instruction.form;
    const int lane = base_lane("e", address, layout), column = column_of(address);
    if (descriptor.selector >= form.selectors)
        refuse_value("the selector of ", spelled(instruction), " must be ", form.selectors > 1 ? "0 or 1" : "0",
                     ": no public source states which columns selector ", descriptor.selector, " selects.");
    if (column % METADATA_COLUMNS)
        refuse_value("metadata of ", spelled(instruction), " must start at an even column of tensor memory, not ",
                     column, ".");
    Builder builder("e", layout.e[form.container_bits >= 16], lane, column + descriptor.selector, 4);
    for (int row = 0; row < layout.rows; ++row)
        for (int chunk = 0; chunk < form.chunks; ++chunk) builder.add(row, chunk);
    builder.add_copies(layout.parts, layout.rows);
    return builder.done();
}

TensorMap scale_map(const char *name, int lines, int size, int scale_id, uint64_t address, int parts) {
    if (const int lane = lane_of(name, address))
        refuse_value(name, " must start at lane 0 of tensor memory, not ", lane, ".");
    if (parts > 1 && lines % (parts * PARTITION))
        refuse_value(name, " must be for a multiple of ", parts * PARTITION, " columns of B, not for ", lines,
                     ": no public source states where layout B holds the scales of other numbers of columns.");
    Builder builder(name, SCALE_PLACES, 0, column_of(address), 8);
    const int width = lines / parts;
    for (int line = 0; line < lines; ++line)
        for (int scale = 0; scale < size; ++scale)
            builder.add(line % width, scale, line / width * (TENSOR_LANES / parts), 8 * scale_id);
    builder.add_copies(TENSOR_LANES / parts / PARTITION, PARTITION);
    return builder.done();
}

}  // namespace sptc
