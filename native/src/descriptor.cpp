#include "descriptor.h"

#include <algorithm>
#include <string>

#include "sptc.h"
#include "text.h"

namespace sptc {

namespace {

// Returns the accepted numbers as text; a long arithmetic sequence is abbreviated to its ends and step.
std::string numbers(const std::vector<int> &choices) {
    const size_t count = choices.size();
    const int step = count > 1 ? choices[count - 1] - choices[count - 2] : 0;
    bool even = count > 5;
    for (size_t index = 1; index < count; ++index) even &= choices[index] - choices[index - 1] == step;
    if (even)
        return std::to_string(choices.front()) + " to " + std::to_string(choices.back()) + " in steps of " +
               std::to_string(step);
    std::vector<std::string> words;
    for (int choice : choices) words.push_back(std::to_string(choice));
    return one_of(words);
}

std::vector<int> counted(int end, int step = 1) {
    std::vector<int> multiples;
    for (int number = 0; number < end; number += step) multiples.push_back(number);
    return multiples;
}

void check_choice(const std::string &subject, int value, const std::vector<int> &accepted) {
    if (std::find(accepted.begin(), accepted.end(), value) == accepted.end())
        refuse_value(subject, " must be ", numbers(accepted), ", not ", value, ".");
}

// Returns the index in FORMATS of the format with a given code in a descriptor field.
template <size_t count>
int format_of(const int (&by_code)[count], uint32_t code, const char *role, const std::string &where) {
    if (code < count && by_code[code] >= 0) return by_code[code];
    std::vector<std::string> known;
    for (size_t number = 0; number < count; ++number)
        if (by_code[number] >= 0) known.push_back(std::to_string(number) + " (." + FORMATS[by_code[number]].name + ")");
    refuse_value("the type of ", role, " in ", where, " must be ", one_of(known), ", not ", code, ".");
}

// Returns the first defined format in a table that maps the codes of a descriptor field to formats.
template <size_t count>
int only_format(const int (&by_code)[count]) {
    return *std::find_if(by_code, by_code + count, [](int format) { return format >= 0; });
}

// Throws an error for descriptor bits that contradict the opcode.
void check_form(const OpcodeOn &opcode, const DescriptorFields &fields, uint32_t value, const std::string &where) {
    if (const uint64_t reserved = value & ~fields.defined)
        refuse_value(where, " sets the reserved bits ", hexadecimal(reserved, 0), ", which must be 0.");
    const bool sparse = fields.sparse.of(value);
    if (opcode.sparse && !sparse) refuse_value(where, " describes a dense instruction; bit 2 must be 1 for '.sp'.");
    if (sparse && !opcode.sparse)
        refuse_value(where, " describes a sparse instruction; bit 2 must be 0 without '.sp'.");
    if (fields.k.of(value))
        refuse_value(where, " sets K = 96, ",
                     opcode.sparse ? "which only dense instructions have" : "which is not modelled",
                     "; bit 31 must be 0.");
    if (fields.saturate.of(value) && !opcode.of_kind().saturates)
        refuse_value(where, " enables saturation, which only '.kind::i8' has; bit 3 must be 0.");
}

void check_shape(const OpcodeOn &opcode, int m, int n, const std::string &where) {
    const OpcodeShapes &shapes = *opcode.shapes;
    std::vector<int> columns;
    for (int number = 8; number <= 256; number += 8)
        if (has_multiple(shapes.columns, number)) columns.push_back(number);
    check_choice("M in " + where, m, std::vector<int>(shapes.rows, shapes.rows + shapes.count));
    check_choice("N in " + where, n, columns);
}

// Throws an error for descriptor fields with values that the kind of instruction does not allow.
void check_operands(const OpcodeOn &opcode, const DescriptorFields &fields, uint32_t value, const int *types,
                    const std::string &where) {
    const Kind &kind = opcode.of_kind();
    const Format &d = FORMATS[types[0]], &a = FORMATS[types[1]], &b = FORMATS[types[2]];
    if (!kind.mixes && types[1] != types[2])
        refuse_value("A and B in ", where, " must have the same type, not .", a.name, " and .", b.name, ".");
    if (d.bits == 16 && std::string(a.name) == "bf16")
        refuse_value("the type of D in ", where, " must be .f32 if A is .bf16, not .f16.");
    if (fields.negate_a.of(value) && !kind.negates)
        refuse_value(where, " negates A, which '.kind::", kind.name, "' does not support.");
    if (fields.transpose_a.of(value) && !kind.transposes)
        refuse_value(where, " transposes A, which kind ", kind.name, " does not support for .", a.name, ".");
    if (fields.negate_b.of(value) && !kind.negates)
        refuse_value(where, " negates B, which '.kind::", kind.name, "' does not support.");
    if (fields.transpose_b.of(value) && !kind.transposes)
        refuse_value(where, " transposes B, which kind ", kind.name, " does not support for .", b.name, ".");
}

}  // namespace

InstructionDescriptor decode_instruction_descriptor(const OpcodeOn &opcode, uint32_t value) {
    const Kind &kind = opcode.of_kind();
    const DescriptorFields &fields = DESCRIPTOR_FIELDS[kind.fields];
    const std::string where = "instruction descriptor " + hexadecimal(value, 8) + " of " + spelled(opcode);
    check_form(opcode, fields, value, where);
    const int m = int(fields.m.of(value)) * kind.m_unit, n = int(fields.n.of(value)) * 8;
    const int types[] = {
        fields.d.width ? format_of(kind.accumulators, fields.d.of(value), "D", where) : only_format(kind.accumulators),
        format_of(kind.types, fields.a.of(value), "A", where), format_of(kind.types, fields.b.of(value), "B", where)};
    int scale_format = -1;
    if (opcode.scale_size) {
        const int (&by_code)[2] =
            kind.scale_formats[opcode.scale_size / 2];  // index 0, 1 or 2 for 1, 2 or 4 block scales
        scale_format = format_of(by_code, fields.scale_type.of(value), "the block scales", where);
    }
    check_shape(opcode, m, n, where);
    check_operands(opcode, fields, value, types, where);
    InstructionDescriptor decoded{};
    decoded.instruction = described(opcode, m, n, types, fields.saturate.of(value), scale_format);
    const int *row = std::find(opcode.shapes->rows, opcode.shapes->rows + opcode.shapes->count, m);
    decoded.layout = &LAYOUTS[opcode.shapes->layouts[row - opcode.shapes->rows]];
    decoded.selector = int(fields.sparsity_selector.of(value));
    decoded.negates = fields.negate_a.of(value) != fields.negate_b.of(value);
    decoded.transpose_a = fields.transpose_a.of(value), decoded.transpose_b = fields.transpose_b.of(value);
    decoded.scale_id_a = int(fields.scale_id_a.of(value)), decoded.scale_id_b = int(fields.scale_id_b.of(value));
    decoded.max_shift = MAX_SHIFTS[fields.max_shift.of(value)];
    if (const int step = 16 * opcode.cta_group;
        decoded.transpose_b && decoded.instruction.form->container_bits == 8 && n % step)
        refuse_value("N in ", where, " must be a multiple of ", step, " for transposed B with 8-bit elements, not ", n,
                     ".");
    check_choice("the selector in " + where, decoded.selector, counted(opcode.shapes->selectors));
    const std::vector<int> scale_ids = opcode.scale_size ? counted(4, opcode.scale_size) : counted(1);
    check_choice("the scale factor A ID in " + where, decoded.scale_id_a, scale_ids);
    check_choice("the scale factor B ID in " + where, decoded.scale_id_b, scale_ids);
    if (decoded.max_shift && !opcode.weight_stationary)
        refuse_value("the maximum shift in ", where, " must be 0 without '.ws', not ", decoded.max_shift, ".");
    return decoded;
}

ColumnMask decode_column_mask(uint64_t value, const OpcodeOn &opcode, const InstructionDescriptor &descriptor) {
    const ColumnMaskFields &fields = COLUMN_MASK_FIELDS;
    const Layout &layout = *descriptor.layout;
    const std::string where = "zero_column_mask of " + spelled(opcode);
    if (const uint64_t reserved = value & ~fields.defined)
        refuse_value(where, " sets the reserved bits ", hexadecimal(reserved, 0), ", which must be 0.");
    ColumnMask mask;
    mask.shift = int(fields.shift.of(value));
    if (mask.shift > std::min(descriptor.max_shift, layout.largest_shift))
        refuse_value(where, " shifts by ", mask.shift, " columns, but ",
                     descriptor.max_shift <= layout.largest_shift
                         ? "the instruction descriptor allows " + std::to_string(descriptor.max_shift)
                         : "M = " + std::to_string(layout.rows) + " allows " + std::to_string(layout.largest_shift),
                     ".");
    if (!fields.generated.of(value)) return mask;
    const int start_bits = fields.starts.width / fields.skip_first.width;
    const int width = descriptor.instruction.n / layout.parts;
    const int used_span = int(fields.use_span.of(value)) + 1, skipped_span = int(fields.skip_span.of(value)) + 1;
    for (int part = 0; part < layout.parts; ++part) {
        const bool skips_first = fields.skip_first.of(value) >> part & 1;
        const int first_span = skips_first ? skipped_span : used_span;
        const int start = int(fields.starts.of(value) >> start_bits * part & ((1u << start_bits) - 1));
        for (int column = 0; column < width; ++column) {
            const int place = (column + std::min(start, first_span - 1)) % (used_span + skipped_span);
            mask.zero.push_back((place < first_span) == skips_first);
        }
    }
    return mask;
}

}  // namespace sptc
