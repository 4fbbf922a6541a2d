#include "instruction.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "sptc.h"

namespace sptc {

namespace {

constexpr size_t LONGEST_TEXT = 400;

[[noreturn]] void refuse(const std::string &sentence) { throw Error(SPTC_NO_INSTRUCTION, sentence); }

std::string quoted(const std::string &text) { return "'" + text + "'"; }

bool starts_with(const std::string &text, const std::string &with) { return text.compare(0, with.size(), with) == 0; }

std::vector<std::string> split(const std::string &text) {
    std::vector<std::string> words(1);
    for (char letter : text) {
        if (letter == '.')
            words.emplace_back();
        else
            words.back() += letter;
    }
    return words;
}

std::string trimmed(const std::string &text) {
    const auto is_space = [](unsigned char letter) { return std::isspace(letter) != 0; };
    auto first = std::find_if_not(text.begin(), text.end(), is_space);
    auto last = std::find_if_not(text.rbegin(), text.rend(), is_space).base();
    return first < last ? std::string(first, last) : std::string();
}

bool take_number(const std::string &word, size_t &place, char letter, int &number) {
    if (place >= word.size() || word[place] != letter) return false;
    const size_t first = ++place;
    for (number = 0; place < word.size() && std::isdigit(static_cast<unsigned char>(word[place])); ++place) {
        if (place - first > 4) return false;
        number = 10 * number + (word[place] - '0');
    }
    return place > first;
}

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

// The qualifiers of one instruction, sorted by what they are.
struct Words {
    Family family = Family::MMA;
    std::string sparsity, kind, scale_size;
    std::vector<std::string> flags;
    std::vector<int> types;
    int m = 0, n = 0, k = 0;

    bool has(const std::string &flag) const { return std::find(flags.begin(), flags.end(), flag) != flags.end(); }
};

void take(std::string &part, const std::string &word, const std::string &text) {
    if (!part.empty()) refuse(quoted("." + word) + " in " + quoted(text) + " repeats '." + part + "'; one is expected.");
    part = word;
}

bool take_shape(Words &words, const std::string &word) {
    size_t place = 0;
    int m = 0, n = 0, k = 0;
    if (!take_number(word, place, 'm', m) || !take_number(word, place, 'n', n) || !take_number(word, place, 'k', k))
        return false;
    if (place != word.size()) return false;
    words.m = m, words.n = n, words.k = k;
    return true;
}

Words sorted_words(const std::string &text) {
    std::string plain = trimmed(text);
    std::string described;
    if (const size_t open = plain.find('('); open != std::string::npos && plain.back() == ')') {
        described = plain.substr(open + 1, plain.size() - open - 2);
        plain = trimmed(plain.substr(0, open));
    }
    if (!plain.empty() && plain.back() == ';') plain = trimmed(plain.substr(0, plain.size() - 1));
    std::vector<std::string> parts = split(plain);
    Words words;
    const std::string family = parts.front();
    if (family == "wgmma")
        words.family = Family::WGMMA;
    else if (family == "tcgen05")
        words.family = Family::TCGEN05;
    else if (family != "mma")
        refuse(quoted(family) + " in " + quoted(text) + " is no known opcode; accepted are mma, wgmma and tcgen05.");
    if (words.family == Family::TCGEN05) {
        if (described.empty())
            refuse(quoted(text) + " leaves shape and types to an instruction descriptor; write them behind it, for "
                                  "example (m128n8k32.f32.f16.f16).");
        const std::vector<std::string> behind = split(described);
        parts.insert(parts.end(), behind.begin(), behind.end());
    } else if (!described.empty()) {
        refuse(quoted("(" + described + ")") + " in " + quoted(text) + " is not accepted; it belongs to tcgen05.");
    }
    for (size_t index = 1; index < parts.size(); ++index) {
        const std::string &word = parts[index];
        if (word == "sp" || word == "sp::ordered_metadata") {
            take(words.sparsity, word, text);
        } else if (starts_with(word, "kind::")) {
            take(words.kind, word.substr(6), text);
        } else if (starts_with(word, "scale_vec::")) {
            take(words.scale_size, word, text);
        } else if (const int number = format_number(word); number >= 0) {
            words.types.push_back(number);
        } else if (!words.m && take_shape(words, word)) {
        } else {
            static const char *const flags[] = {"sync", "aligned", "row", "col", "satfinite", "block_scale", "mma_async", "mma"};
            if (std::find(std::begin(flags), std::end(flags), word) == std::end(flags))
                refuse(quoted("." + word) + " in " + quoted(text) + " is no part of " + family_name(words.family) + ".");
            if (words.has(word)) refuse(quoted("." + word) + " stands twice in " + quoted(text) + "; once is expected.");
            words.flags.push_back(word);
        }
    }
    return words;
}

void require_flags(const Words &words, const std::string &text) {
    std::vector<std::string> required = {"sync", "aligned"}, accepted = {"satfinite"};
    if (words.family == Family::MMA) required.insert(required.end(), {"row", "col"});
    if (words.family == Family::WGMMA) required.push_back("mma_async");
    if (words.family == Family::TCGEN05) required = {"mma"};
    accepted.insert(accepted.end(), required.begin(), required.end());
    accepted.push_back("block_scale");
    for (const std::string &flag : required)
        if (!words.has(flag)) refuse(quoted("." + flag) + " is missing in " + quoted(text) + ".");
    for (const std::string &flag : words.flags)
        if (std::find(accepted.begin(), accepted.end(), flag) == accepted.end())
            refuse(quoted("." + flag) + " in " + quoted(text) + " is no part of " + family_name(words.family) + ".");
    if (words.family == Family::MMA && std::find(words.flags.begin(), words.flags.end(), "row") >
                                           std::find(words.flags.begin(), words.flags.end(), "col"))
        refuse("the layouts in " + quoted(text) + " must be '.row.col'.");
    if (!words.m) refuse("the shape is missing in " + quoted(text) + "; expected one such as .m16n8k32.");
}

bool has_multiple(int number, int value) {
    return value > 0 && value % 8 == 0 && value <= 256 && MULTIPLES[number] >> (value / 8 - 1) & 1;
}

// Whether a form is what the words ask for, apart from the number of its block scales.
bool is_meant(const Form &form, const Words &words, const int *types) {
    const bool mma = form.family == Family::MMA;
    return form.family == words.family && words.kind == form.kind && words.sparsity == sparsity_name(form.sparsity) &&
           form.k == words.k && has_multiple(form.rows, words.m) && has_multiple(form.columns, words.n) &&
           form.d == types[0] && form.a == types[1] && form.b == types[2] && (!mma || form.c == types[3]) &&
           form.satfinite == words.has("satfinite") && (form.scale_size != 0) == words.has("block_scale");
}

bool scale_is_meant(const Form &form, const Words &words, int type) {
    if (!form.scale_size) return words.scale_size.empty();
    if (form.scale_format != type) return false;
    if (words.scale_size.empty()) return !form.says_scale_size;
    return words.scale_size == "scale_vec::" + std::to_string(form.scale_size) + "X";
}

std::string having(const Form &form) {
    std::string names;
    for (size_t index = 0; index < std::size(ARCHITECTURES); ++index)
        if (form.numerics[index] >= 0) names += (names.empty() ? "" : ", ") + std::string(ARCHITECTURES[index].name);
    return names;
}

}  // namespace

Instruction parse(const std::string &text, const std::string &architecture) {
    if (text.size() > LONGEST_TEXT)
        refuse("an instruction has at most " + std::to_string(LONGEST_TEXT) + " characters, not " +
               std::to_string(text.size()) + ".");
    if (!std::all_of(text.begin(), text.end(), [](unsigned char letter) { return letter >= ' ' && letter < 127; }))
        refuse("an instruction is a line of printable ASCII characters.");
    const auto found = std::find_if(std::begin(ARCHITECTURES), std::end(ARCHITECTURES),
                                    [&](const Architecture &one) { return architecture == one.name; });
    if (found == std::end(ARCHITECTURES)) {
        std::string names;
        for (const Architecture &one : ARCHITECTURES) names += (names.empty() ? "" : ", ") + std::string(one.name);
        throw Error(SPTC_NO_ARCHITECTURE,
                    quoted(architecture.substr(0, 40)) + " is no known architecture; expected one of " + names + ".");
    }
    const Words words = sorted_words(text);
    require_flags(words, text);
    const size_t wanted = (words.family == Family::MMA ? 4 : 3) + (words.has("block_scale") ? 1 : 0);
    if (words.types.size() != wanted)
        refuse(quoted(text) + " has " + std::to_string(words.types.size()) + " types; " + std::to_string(wanted) +
               " are expected: dtype, atype, btype" + (words.family == Family::MMA ? ", ctype" : "") +
               (words.has("block_scale") ? ", stype" : "") + ".");
    for (const Form &form : FORMS) {
        if (!is_meant(form, words, words.types.data()) || !scale_is_meant(form, words, words.types.back())) continue;
        const int number = form.numerics[found - std::begin(ARCHITECTURES)];
        if (number < 0)
            throw Error(SPTC_NO_ARCHITECTURE,
                        architecture + " does not have " + quoted(text) + "; these have it: " + having(form) + ".");
        return {&form, &NUMERICS[number], words.m, words.n, found->mux};
    }
    refuse("no instruction has this combination of shape, types and qualifiers: " + quoted(text) + ".");
}

std::string spelled(const Instruction &instruction) {
    const Form &form = *instruction.form;
    const std::string sparse = instruction.sparse() ? std::string(".") + sparsity_name(form.sparsity) : "";
    const std::string shape = "m" + std::to_string(instruction.m) + "n" + std::to_string(instruction.n) + "k" +
                              std::to_string(form.k);
    const std::string kind = *form.kind ? std::string(".kind::") + form.kind : "";
    const std::string scale =
        form.scale_size ? ".block_scale.scale_vec::" + std::to_string(form.scale_size) + "X" : "";
    const std::string saturation = form.satfinite ? ".satfinite" : "";
    std::string types = std::string(".") + FORMATS[form.d].name + "." + FORMATS[form.a].name + "." +
                        FORMATS[form.b].name;
    if (form.family == Family::MMA) types += std::string(".") + FORMATS[form.c].name;
    if (form.scale_size) types += std::string(".") + FORMATS[form.scale_format].name;
    if (form.family == Family::TCGEN05)
        return "tcgen05.mma" + sparse + kind + scale + " (" + shape + saturation + types + ")";
    const std::string opcode = form.family == Family::WGMMA ? "wgmma.mma_async" : "mma";
    const std::string layouts = form.family == Family::MMA ? ".row.col" : "";
    return opcode + sparse + ".sync.aligned." + shape + layouts + kind + scale + saturation + types;
}

}  // namespace sptc
