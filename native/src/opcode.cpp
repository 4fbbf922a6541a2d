#include "opcode.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "instruction.h"
#include "sptc.h"
#include "text.h"

namespace sptc {

namespace {

[[noreturn]] void refuse_word(const std::string &word, const std::string &text, const std::string &why) {
    refuse_instruction(quoted("." + word), " in ", quoted(text), " is not accepted; ", why, ".");
}

// The qualifiers of an opcode by their meaning. A qualifier that the opcode does not have is an empty text.
struct Qualifiers {
    std::string sp, cta_group, kind, block_scale, scale_word, collector, ashift;
};

bool is_scale_word(const std::string &word) {
    const auto has = [&](size_t from, bool (*good)(unsigned char)) {
        return word.size() > from && std::all_of(word.begin() + std::ptrdiff_t(from), word.end(), good);
    };
    if (starts_with(word, "scale_vec::"))
        return has(11, [](unsigned char letter) { return std::isalnum(letter) != 0 || letter == '_'; });
    return starts_with(word, "block") && has(5, [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

bool is_collector(const std::string &word) {
    static const char *const buffers[] = {"a", "b0", "b1", "b2", "b3"};
    static const char *const uses[] = {"fill", "use", "lastuse", "discard"};
    for (const char *buffer : buffers)
        for (const char *use : uses)
            if (word == std::string("collector::") + buffer + "::" + use) return true;
    return false;
}

std::string &part_for(const std::string &word, Qualifiers &qualifiers, const std::string &text) {
    if (word == "sp") return qualifiers.sp;
    if (word == "block_scale") return qualifiers.block_scale;
    if (word == "ashift") return qualifiers.ashift;
    if (starts_with(word, "cta_group::")) return qualifiers.cta_group;
    if (starts_with(word, "kind::")) return qualifiers.kind;
    if (is_scale_word(word)) return qualifiers.scale_word;
    if (is_collector(word)) return qualifiers.collector;
    refuse_instruction(
        quoted("." + word), " in ", quoted(text),
        " is no part of tcgen05.mma; accepted are .sp, .cta_group::..., .kind::..., .block_scale, .scale_vec::..., "
        ".block16, .block32, .collector::...::... and .ashift, and .ws directly after tcgen05.mma.");
}

int kind_number(const std::string &word, const std::string &text) {
    if (word.empty())
        refuse_instruction("'.kind' is missing in ", quoted(text), "; expected for example '.kind::f16'.");
    std::vector<std::string> names;
    for (const Kind &kind : KINDS) {
        if (word == std::string("kind::") + kind.name) return int(&kind - KINDS);
        names.push_back(std::string("'.kind::") + kind.name + "'");
    }
    refuse_word(word, text, "expected " + one_of(names));
}

std::vector<std::string> kinds_that(bool scaled) {
    std::vector<std::string> names;
    for (const Kind &kind : KINDS)
        if (kind.scaled == scaled) names.push_back(std::string("'.kind::") + kind.name + "'");
    return names;
}

// Returns the number of block scales per row of A or column of B; 0 if the kind has no block scales.
int scale_size(int kind, const Qualifiers &qualifiers, const std::string &text) {
    const std::string named = quoted(std::string(".kind::") + KINDS[kind].name);
    if (!KINDS[kind].scaled) {
        const std::string &written = qualifiers.block_scale.empty() ? qualifiers.scale_word : qualifiers.block_scale;
        if (!written.empty()) refuse_word(written, text, "it belongs to " + one_of(kinds_that(true)));
        return 0;
    }
    if (qualifiers.block_scale.empty())
        refuse_instruction("'.block_scale' is missing in ", quoted(text), "; ", named, " requires it.");
    std::vector<std::string> accepted;
    for (const ScaleWord &word : SCALE_WORDS) {
        if (word.kind != kind) continue;
        if (qualifiers.scale_word == word.word) return word.size;
        if (*word.word) accepted.push_back(quoted(std::string(".") + word.word));
    }
    if (qualifiers.scale_word.empty())
        refuse_instruction("'.scale_vec' is missing in ", quoted(text), "; ", named, " takes ", one_of(accepted), ".");
    refuse_word(qualifiers.scale_word, text, named + " takes " + one_of(accepted));
}

void check_collector(const Qualifiers &qualifiers, bool weight_stationary, const std::string &text) {
    if (qualifiers.collector.empty() || starts_with(qualifiers.collector, "collector::a") != weight_stationary) return;
    refuse_word(qualifiers.collector, text,
                weight_stationary ? "with '.ws' the collector is '.collector::b0' to '.collector::b3'"
                                  : "without '.ws' the collector is '.collector::a'");
}

void check_shift(int kind, const Qualifiers &qualifiers, bool weight_stationary, const std::string &text) {
    if (qualifiers.ashift.empty()) return;
    if (weight_stationary) refuse_word("ashift", text, "'.ws' does not shift A");
    if (KINDS[kind].scaled) refuse_word("ashift", text, "it belongs to " + one_of(kinds_that(false)));
    if (qualifiers.collector == "collector::a::fill" || qualifiers.collector == "collector::a::use")
        refuse_word(qualifiers.collector, text,
                    "with '.ashift' it must be '.collector::a::lastuse' or '.collector::a::discard'");
}

const OpcodeShapes *shapes_of(const Opcode &opcode) {
    for (const OpcodeShapes &row : OPCODE_SHAPES)
        if (row.kind == opcode.kind && row.sparse == opcode.sparse && row.cta_group == opcode.cta_group &&
            row.weight_stationary == opcode.weight_stationary && row.shifts_a == opcode.shifts_a)
            return &row;
    return nullptr;
}

}  // namespace

void take(std::string &part, const std::string &word, const std::string &text) {
    if (!part.empty())
        refuse_instruction(quoted(text), " has both '.", part, "' and ", quoted("." + word),
                           "; only one of them is allowed.");
    part = word;
}

Opcode parse_opcode(const std::string &opcode, const std::string &text, bool requires_cta_group) {
    const std::vector<std::string> words = split(opcode);
    if (words.size() < 2 || words[0] != "tcgen05" || words[1] != "mma") {
        const std::string head = words.size() < 2 ? words[0] : words[0] + "." + words[1];
        refuse_instruction(quoted(head), " in ", quoted(text), " is no known opcode; expected tcgen05.mma.");
    }
    const bool weight_stationary = words.size() > 2 && words[2] == "ws";
    Qualifiers qualifiers;
    for (size_t index = weight_stationary ? 3 : 2; index < words.size(); ++index)
        take(part_for(words[index], qualifiers, text), words[index], text);
    if (requires_cta_group && qualifiers.cta_group.empty())
        refuse_instruction("'.cta_group' is missing in ", quoted(text), "; expected for example '.cta_group::1'.");
    if (!qualifiers.cta_group.empty() && qualifiers.cta_group != "cta_group::1" &&
        qualifiers.cta_group != "cta_group::2")
        refuse_word(qualifiers.cta_group, text, "expected 1 or 2 CTAs");
    const int kind = kind_number(qualifiers.kind, text);
    if (weight_stationary && qualifiers.cta_group == "cta_group::2")
        refuse_word("cta_group::2", text, "'.ws' takes '.cta_group::1'");
    if (weight_stationary && KINDS[kind].scaled) refuse_word(qualifiers.kind, text, "'.ws' takes no block-scaled kind");
    const int scales = scale_size(kind, qualifiers, text);
    check_collector(qualifiers, weight_stationary, text);
    check_shift(kind, qualifiers, weight_stationary, text);
    Opcode parsed{kind,
                  !qualifiers.sp.empty(),
                  weight_stationary,
                  !qualifiers.ashift.empty(),
                  qualifiers.cta_group.empty() ? 0 : qualifiers.cta_group.back() - '0',
                  scales,
                  qualifiers.scale_word,
                  qualifiers.collector,
                  nullptr};
    parsed.shapes = shapes_of(parsed);
    return parsed;
}

std::string spelled(const Opcode &opcode) {
    const auto word = [](const std::string &qualifier) { return qualifier.empty() ? qualifier : "." + qualifier; };
    return std::string("tcgen05.mma") + (opcode.weight_stationary ? ".ws" : "") + (opcode.sparse ? ".sp" : "") +
           ".cta_group::" + std::to_string(opcode.cta_group) + ".kind::" + opcode.of_kind().name +
           (opcode.scale_size ? ".block_scale" : "") + word(opcode.scale_word) + word(opcode.collector) +
           (opcode.shifts_a ? ".ashift" : "");
}

}  // namespace sptc
