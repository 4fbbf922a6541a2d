#include "instruction.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "opcode.h"
#include "sptc.h"
#include "text.h"

namespace sptc {

namespace {

constexpr size_t LONGEST_TEXT = 400;

int format_number(const std::string &name) {
    int number = 0;
    for (const Format &format : FORMATS) {
        if (name == format.name) return number;
        ++number;
    }
    return -1;
}

const char *family_name(Family family) {
    return family == Family::MMA ? "mma" : family == Family::WGMMA ? "wgmma" : "tcgen05";
}

const char *sparsity_name(Sparsity sparsity) {
    return sparsity == Sparsity::DENSE ? "" : sparsity == Sparsity::SPARSE ? "sp" : "sp::ordered_metadata";
}

// The qualifiers of one instruction text, sorted by meaning.
struct Words {
    Family family = Family::MMA;
    std::string sparsity, kind, scale_size;
    std::vector<std::string> flags;
    std::vector<int> types;
    int m = 0, n = 0, k = 0;
    const OpcodeShapes *shapes = nullptr;  // allowed shapes of a tcgen05 opcode with cta_group; otherwise null

    bool has(const std::string &flag) const { return std::find(flags.begin(), flags.end(), flag) != flags.end(); }
};

bool take_shape(Words &words, const std::string &word) {
    char m[6], n[6], k[6];
    int end = 0;
    if (std::sscanf(word.c_str(), "m%5[0-9]n%5[0-9]k%5[0-9]%n", m, n, k, &end) < 3 || size_t(end) != word.size())
        return false;
    words.m = std::stoi(m), words.n = std::stoi(n), words.k = std::stoi(k);
    return true;
}

void take_word(Words &words, const std::string &word, const std::string &text) {
    // In a tcgen05 instruction, `word` is part of the parentheses after the opcode: the shape, a type or the saturation.
    const bool by_opcode = words.family == Family::TCGEN05;
    if (!by_opcode && (word == "sp" || word == "sp::ordered_metadata")) return take(words.sparsity, word, text);
    if (!by_opcode && starts_with(word, "kind::")) return take(words.kind, word.substr(6), text);
    if (!by_opcode && starts_with(word, "scale_vec::")) return take(words.scale_size, word, text);
    if (const int number = format_number(word); number >= 0) return words.types.push_back(number);
    if (!words.m && take_shape(words, word)) return;
    static const char *const flags[] = {"satfinite", "sync", "aligned", "row", "col", "block_scale", "mma_async"};
    const auto end = by_opcode ? std::begin(flags) + 1 : std::end(flags);
    if (std::find(std::begin(flags), end, word) == end)
        refuse_instruction(quoted("." + word), " in ", quoted(text), " is no part of ", family_name(words.family), ".");
    if (words.has(word))
        refuse_instruction(quoted("." + word), " appears twice in ", quoted(text), "; once is expected.");
    words.flags.push_back(word);
}

// Parses a tcgen05 text: the opcode, then shape and types in parentheses. PTX has shape and types in the instruction
// descriptor instead.
Words described_words(const std::string &text) {
    const std::string whole = trimmed(text);
    const size_t open = whole.find('(');
    if (whole.back() != ')')
        refuse_instruction("the shape and types in ", quoted(text), " must end in a closing parenthesis.");
    const Opcode opcode = parse_opcode(statement(whole.substr(0, open)), text, false);
    Words words;
    words.family = Family::TCGEN05;
    words.sparsity = opcode.sparse ? "sp" : "";
    words.kind = opcode.of_kind().name;
    words.shapes = opcode.shapes;
    if (opcode.scale_size) {
        words.scale_size = "scale_vec::" + std::to_string(opcode.scale_size) + "X";
        words.flags.push_back("block_scale");
    }
    for (const std::string &word : split(whole.substr(open + 1, whole.size() - open - 2))) take_word(words, word, text);
    return words;
}

Words sorted_words(const std::string &text) {
    const std::vector<std::string> parts = split(statement(text));
    Words words;
    if (parts.front() == "tcgen05") return described_words(text);
    if (parts.front() == "wgmma")
        words.family = Family::WGMMA;
    else if (parts.front() != "mma")
        refuse_instruction(quoted(parts.front()), " in ", quoted(text),
                           " is no known opcode; accepted are mma, wgmma and tcgen05.");
    if (const size_t open = text.find('('); open != std::string::npos)
        refuse_instruction(quoted(text.substr(open)), " in ", quoted(text), " is not accepted; it belongs to tcgen05.");
    for (size_t index = 1; index < parts.size(); ++index) take_word(words, parts[index], text);
    return words;
}

void require_flags(const Words &words, const std::string &text) {
    std::vector<std::string> required = {"sync", "aligned"}, accepted = {"satfinite"};
    if (words.family == Family::MMA) required.insert(required.end(), {"row", "col"});
    if (words.family == Family::WGMMA) required.push_back("mma_async");
    if (words.family == Family::TCGEN05) required.clear();
    accepted.insert(accepted.end(), required.begin(), required.end());
    accepted.push_back("block_scale");
    for (const std::string &flag : required)
        if (!words.has(flag)) refuse_instruction(quoted("." + flag), " is missing in ", quoted(text), ".");
    for (const std::string &flag : words.flags)
        if (std::find(accepted.begin(), accepted.end(), flag) == accepted.end())
            refuse_instruction(quoted("." + flag), " in ", quoted(text), " is no part of ", family_name(words.family),
                               ".");
    if (words.family == Family::MMA && std::find(words.flags.begin(), words.flags.end(), "row") >
                                           std::find(words.flags.begin(), words.flags.end(), "col"))
        refuse_instruction("the layouts in ", quoted(text), " must be '.row.col'.");
    if (!words.m) refuse_instruction("the shape is missing in ", quoted(text), "; expected one such as .m16n8k32.");
}

// Returns whether a form (instructions that differ only in M and N) matches the qualifiers of a text. The number of
// block scales is not compared.
bool is_meant(const Form &form, const Words &words, const int *types) {
    const bool mma = form.family == Family::MMA;
    return form.family == words.family && words.kind == form.kind && words.sparsity == sparsity_name(form.sparsity) &&
           form.k == words.k && has_multiple(form.rows, words.m) && has_multiple(form.columns, words.n) &&
           form.d == types[0] && form.a == types[1] && form.b == types[2] && (!mma || form.c == types[3]) &&
           (!words.shapes || allows(*words.shapes, words.m, words.n)) && form.satfinite == words.has("satfinite") &&
           (form.scale_size != 0) == words.has("block_scale");
}

bool scale_is_meant(const Form &form, const Words &words, int type) {
    if (!form.scale_size) return words.scale_size.empty();
    if (form.scale_format != type) return false;
    if (words.scale_size.empty()) return !form.says_scale_size;
    return words.scale_size == "scale_vec::" + std::to_string(form.scale_size) + "X";
}

bool has(const Architecture &architecture, const Form &form) {
    const char *sparse = form.sparsity == Sparsity::DENSE ? "." : ".sp.";
    const std::string word = joined(" ", family_name(form.family), sparse, form.kind, " ");
    const bool lacks = *form.kind && std::string(architecture.lacks).find(word) != std::string::npos;
    return form.numerics[architecture.numerics] >= 0 && !lacks;
}

std::string having(const Form &form) {
    std::string names;
    for (const Architecture &one : ARCHITECTURES)
        if (has(one, form)) names += (names.empty() ? "" : ", ") + std::string(one.name);
    return names;
}

void check_line(const std::string &text) {
    if (text.size() > LONGEST_TEXT)
        refuse_instruction("an instruction has at most ", LONGEST_TEXT, " characters, not ", text.size(), ".");
    if (!std::all_of(text.begin(), text.end(), [](unsigned char letter) { return letter >= ' ' && letter < 127; }))
        refuse_instruction("an instruction is a line of printable ASCII characters.");
}

const Architecture &architecture_named(const std::string &name) {
    for (const Architecture &one : ARCHITECTURES)
        if (name == one.name) return one;
    std::string names;
    for (const Architecture &one : ARCHITECTURES) names += (names.empty() ? "" : ", ") + std::string(one.name);
    throw Error(SPTC_NO_ARCHITECTURE, quoted(name.substr(0, 40)), " is no known architecture; expected one of ", names,
                ".");
}

// Returns the numerics of an instruction form on an architecture; throws if the architecture lacks the form.
const Numerics &numerics_on(const Architecture &architecture, const Form &form, const std::string &text) {
    if (!has(architecture, form))
        throw Error(SPTC_NO_ARCHITECTURE, architecture.name, " does not have ", quoted(text),
                    "; these have it: ", having(form), ".");
    return NUMERICS[form.numerics[architecture.numerics]];
}

}  // namespace

bool has_multiple(int number, int value) {
    return value > 0 && value % 8 == 0 && value <= 256 && MULTIPLES[number] >> (value / 8 - 1) & 1;
}

bool allows(const OpcodeShapes &shapes, int m, int n) {
    return std::find(shapes.rows, shapes.rows + shapes.count, m) != shapes.rows + shapes.count &&
           has_multiple(shapes.columns, n);
}

bool names_opcode(const std::string &text) {
    return starts_with(trimmed(text), "tcgen05") && text.find('(') == std::string::npos;
}

OpcodeOn parse_opcode_on(const std::string &text, const std::string &architecture) {
    check_line(text);
    const Architecture &found = architecture_named(architecture);
    const Opcode opcode = parse_opcode(statement(text), text, true);
    // All forms of one kind and sparsity exist on the same architectures, so only the first form is checked.
    for (const Form &form : FORMS)
        if (form.family == Family::TCGEN05 && std::string(form.kind) == opcode.of_kind().name &&
            (form.sparsity != Sparsity::DENSE) == opcode.sparse) {
            numerics_on(found, form, text);
            break;
        }
    if (found.is_family && text.find("scale_vec::") != std::string::npos)
        throw Error(SPTC_NO_ARCHITECTURE, found.name, " does not have '.scale_vec' of ", quoted(text),
                    "; use '.block16' or '.block32'.");
    return {opcode, &found};
}

Instruction described(const OpcodeOn &opcode, int m, int n, const int *types, bool satfinite, int scale_format) {
    for (const Form &form : FORMS)
        if (form.family == Family::TCGEN05 && std::string(form.kind) == opcode.of_kind().name &&
            (form.sparsity != Sparsity::DENSE) == opcode.sparse && form.d == types[0] && form.a == types[1] &&
            form.b == types[2] && form.satfinite == satfinite && form.scale_size == opcode.scale_size &&
            form.scale_format == scale_format)
            return {&form, &numerics_on(*opcode.architecture, form, spelled(opcode)), m, n, opcode.architecture->mux};
    refuse_instruction(spelled(opcode), " has no instruction with these types.");
}

Instruction parse(const std::string &text, const std::string &architecture) {
    check_line(text);
    const Architecture &found = architecture_named(architecture);
    const Words words = sorted_words(text);
    require_flags(words, text);
    const size_t type_count = (words.family == Family::MMA ? 4 : 3) + (words.has("block_scale") ? 1 : 0);
    if (words.types.size() != type_count)
        refuse_instruction(quoted(text), " has ", words.types.size(), " types; ", type_count,
                           " are expected: dtype, atype, btype", words.family == Family::MMA ? ", ctype" : "",
                           words.has("block_scale") ? ", stype" : "", ".");
    for (const Form &form : FORMS) {
        if (!is_meant(form, words, words.types.data()) || !scale_is_meant(form, words, words.types.back())) continue;
        return {&form, &numerics_on(found, form, text), words.m, words.n, found.mux};
    }
    refuse_instruction("no instruction has this combination of shape, types and qualifiers: ", quoted(text), ".");
}

std::string spelled(const Instruction &instruction) {
    const Form &form = *instruction.form;
    const std::string sparse = instruction.sparse() ? joined(".", sparsity_name(form.sparsity)) : "";
    const std::string shape = joined("m", instruction.m, "n", instruction.n, "k", form.k);
    const std::string kind = *form.kind ? joined(".kind::", form.kind) : "";
    const std::string scale = form.scale_size ? joined(".block_scale.scale_vec::", form.scale_size, "X") : "";
    const std::string saturation = form.satfinite ? ".satfinite" : "";
    std::string types = joined(".", FORMATS[form.d].name, ".", FORMATS[form.a].name, ".", FORMATS[form.b].name);
    if (form.family == Family::MMA) types += joined(".", FORMATS[form.c].name);
    if (form.scale_size) types += joined(".", FORMATS[form.scale_format].name);
    if (form.family == Family::TCGEN05)
        return "tcgen05.mma" + sparse + kind + scale + " (" + shape + saturation + types + ")";
    const std::string opcode = form.family == Family::WGMMA ? "wgmma.mma_async" : "mma";
    const std::string layouts = form.family == Family::MMA ? ".row.col" : "";
    return opcode + sparse + ".sync.aligned." + shape + layouts + kind + scale + saturation + types;
}

}  // namespace sptc
