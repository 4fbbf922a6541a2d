// Functions that compose and split texts of instructions and messages.
#ifndef SPTC_TEXT_H
#define SPTC_TEXT_H

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

namespace sptc {

// Returns a piece of an error message as text; an integer is written in decimal.
inline std::string as_text(const std::string &text) { return text; }

template <typename Number, typename = std::enable_if_t<std::is_integral_v<Number>>>
std::string as_text(Number number) {
    return std::to_string(number);
}

template <typename... Parts>
std::string joined(const Parts &...parts) {
    return (as_text(parts) + ...);
}

inline std::string quoted(const std::string &text) { return "'" + text + "'"; }

inline bool starts_with(const std::string &text, const std::string &with) {
    return text.compare(0, with.size(), with) == 0;
}

inline std::vector<std::string> split(const std::string &text) {
    std::vector<std::string> words(1);
    for (char letter : text) {
        if (letter == '.')
            words.emplace_back();
        else
            words.back() += letter;
    }
    return words;
}

inline std::string trimmed(const std::string &text) {
    const auto is_space = [](unsigned char letter) { return std::isspace(letter) != 0; };
    auto first = std::find_if_not(text.begin(), text.end(), is_space);
    auto last = std::find_if_not(text.rbegin(), text.rend(), is_space).base();
    return first < last ? std::string(first, last) : std::string();
}

// Removes spaces at both ends of a text, and a final semicolon.
inline std::string statement(const std::string &text) {
    const std::string whole = trimmed(text);
    return !whole.empty() && whole.back() == ';' ? trimmed(whole.substr(0, whole.size() - 1)) : whole;
}

// Lists choices in one phrase: "a, b or c".
inline std::string one_of(const std::vector<std::string> &choices) {
    std::string listed;
    for (size_t index = 0; index < choices.size(); ++index)
        listed += (index == 0 ? "" : index + 1 < choices.size() ? ", " : " or ") + choices[index];
    return listed;
}

// Writes a number in hexadecimal with at least `digits` digits.
inline std::string hexadecimal(uint64_t value, int digits) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%0*llx", digits, static_cast<unsigned long long>(value));
    return text;
}

}  // namespace sptc

#endif
