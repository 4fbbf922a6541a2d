// Makes random calls of the C interface, some with wrong arguments, in a build with sanitizers. Arguments: seed, number
// of instructions, and a file whose lines contain an instruction, a tab and an architecture. Buffers are on the heap,
// and exactly as long as their stated size, so that a sanitizer finds every access beyond them.
//
// With SPTC_LIBFUZZER, this file is a target of libFuzzer (benchmarks/fuzz.py). The first line of an input contains the
// instruction and the architecture, and the bytes after it replace the random numbers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sptc.h"

namespace {

// Source of numbers: the bytes of the fuzzer's input, and after the last byte a random generator.
struct Randomness {
    std::mt19937_64 generator;
    const uint8_t *next = nullptr, *end = nullptr;

    uint64_t of_bytes(int count) {
        if (end - next < count) return generator();
        uint64_t value = 0;
        while (count--) value = value << 8 | *next++;
        return value;
    }
    uint64_t operator()() { return of_bytes(8); }
} randomness;

uint64_t below(uint64_t end) { return randomness.of_bytes(end <= 256 ? 1 : 8) % end; }
bool happens(int in) { return below(uint64_t(in)) == 0; }

std::string mutated(std::string text) {
    // clang-format off
    static const char *const words[] = {
        ".sp", ".f16", "m16n8k32", ".kind::", "(", ")", "::", ".", ".satfinite", ".m9999999n8k16", ".ws", ".ashift",
        ".cta_group::2", ".collector::a::use", ".block16", "\xff"};
    // clang-format on
    for (uint64_t count = 1 + below(3); count; --count) {
        const size_t place = size_t(below(text.size() + 1));
        switch (below(5)) {
            case 0: text.erase(place, size_t(below(8))); break;
            case 1: text.insert(place, words[below(std::size(words))]); break;
            case 2: text.insert(place, 1, char(1 + below(255))); break;
            case 3: text = text.substr(0, place) + text; break;
            default:
                if (place < text.size()) text[place] = char(1 + below(255));
        }
    }
    return text;
}

// An array on the heap that is filled with random bytes, or with one value.
struct Buffer {
    std::vector<uint8_t> bytes;

    explicit Buffer(int64_t size) : bytes(size_t(size)) {
        const uint64_t kind = below(4);
        for (uint8_t &byte : bytes) byte = kind ? uint8_t(randomness.generator()) : uint8_t(0x44);
    }
    template <typename View>
    View as() {
        const size_t shown = happens(60) ? size_t(below(bytes.size() + 1)) : bytes.size();
        if (shown < bytes.size()) bytes.resize(shown), bytes.shrink_to_fit();
        if (happens(80)) return {nullptr, bytes.size()};
        return {bytes.data(), bytes.size()};
    }
    operator sptc_input() { return as<sptc_input>(); }
    operator sptc_output() { return as<sptc_output>(); }
};

template <typename Integer>
Integer spoiled(Integer right) {
    if (!happens(40)) return right;
    static const int64_t odd[] = {-1, 0, 1, 2, 3, 7, 100, INT32_MIN, INT32_MAX, int64_t(1) << 40, INT64_MIN, INT64_MAX};
    return happens(2) ? Integer(odd[below(std::size(odd))]) : Integer(right + Integer(below(3)) - 1);
}

sptc_status multiply(sptc_instruction *handle, const sptc_shape &shape) {
    const int64_t batch = int64_t(below(3)), m = int64_t(below(20)), n = int64_t(below(40));
    const int64_t steps = 1 + int64_t(below(3)), k = steps * shape.k, stored = steps * shape.stored_k;
    Buffer a(batch * m * stored * shape.operand_bytes), b(batch * k * n * shape.operand_bytes);
    Buffer c(batch * m * n * shape.result_bytes), d(batch * m * n * shape.result_bytes);
    Buffer nibbles(batch * m * steps * shape.chunks), scale_a(batch * m * steps * shape.scales);
    Buffer scale_b(batch * n * steps * shape.scales);
    sptc_matrices matrices{spoiled(batch), spoiled(m), spoiled(n), spoiled(k), a, b, c, {}, {}, {}, d};
    if (shape.chunks || happens(30)) matrices.nibbles = nibbles;
    if (shape.scales || happens(30)) matrices.scale_a = scale_a, matrices.scale_b = scale_b;
    return sptc_multiply(handle, happens(200) ? nullptr : &matrices, spoiled(1 + int(below(3))));
}

sptc_status mma(sptc_instruction *handle, const sptc_shape &shape) {
    const int64_t tiles = int64_t(below(40)), threads = shape.threads ? shape.threads : 32;
    const auto registers = [&](int count) { return Buffer(tiles * threads * count * 4); };
    Buffer a = registers(shape.a_registers), b = registers(shape.b_registers), c = registers(shape.d_registers);
    Buffer e = registers(1), scale_a = registers(1), scale_b = registers(1), d = registers(shape.d_registers);
    sptc_mma_operands operands{};
    operands.tiles = spoiled(tiles), operands.a = a, operands.b = b, operands.c = c, operands.d = d;
    if (shape.chunks || happens(30)) operands.e = e;
    if (shape.scales || happens(30)) operands.scale_a = scale_a, operands.scale_b = scale_b;
    operands.selector = spoiled(int(below(uint64_t(shape.selectors) + 1))), operands.metadata = spoiled(int(below(3)));
    operands.byte_a = spoiled(int(below(4))), operands.thread_a = spoiled(int(below(2)));
    operands.byte_b = spoiled(int(below(4))), operands.thread_b = spoiled(int(below(4)));
    return sptc_mma(handle, &operands, spoiled(1 + int(below(3))));
}

uint64_t offsets() {
    return below(64) | below(64) << 16 | below(64) << 32 | below(8) << 49 |
           (happens(20) ? uint64_t(1) << below(64) : 0);
}

uint64_t descriptor() { return happens(10) ? randomness() : offsets() | below(4) << 62; }

sptc_status wgmma(sptc_instruction *handle, const sptc_shape &shape) {
    const int64_t tiles = int64_t(below(3)), image = happens(5) ? int64_t(below(4096)) : 65536;
    const bool one_image = happens(3);
    const auto registers = [&](int count) { return Buffer(tiles * shape.threads * count * 4); };
    Buffer a = registers(shape.a_registers), c = registers(shape.d_registers), d = registers(shape.d_registers);
    Buffer e = registers(1), smem(one_image ? image : tiles * image);
    sptc_wgmma_operands operands{};
    operands.tiles = spoiled(tiles), operands.c = c, operands.d = d, operands.smem = smem;
    if (happens(2)) operands.a = a;
    operands.a_descriptor = descriptor(), operands.b_descriptor = descriptor();
    if (shape.chunks || happens(30)) operands.e = e;
    operands.selector = spoiled(int(below(uint64_t(shape.selectors) + 1))), operands.metadata = spoiled(int(below(3)));
    operands.smem_stride = spoiled(one_image ? size_t(0) : size_t(image));
    operands.scale_d = spoiled(int(below(2)));
    operands.imm_scale_a = spoiled(happens(2) ? 1 : -1), operands.imm_scale_b = spoiled(happens(2) ? 1 : -1);
    operands.imm_trans_a = spoiled(int(happens(4))), operands.imm_trans_b = spoiled(int(happens(4)));
    return sptc_wgmma(handle, &operands, spoiled(1 + int(below(3))));
}

uint64_t tensor_descriptor() { return happens(10) ? randomness() : offsets() | uint64_t(1) << 46 | below(4) << 62; }

uint32_t tensor_address(uint32_t columns) {
    return happens(30) ? uint32_t(randomness())
                       : uint32_t(below(columns)) | (happens(20) ? uint32_t(below(9)) << 20 : 0);
}

// Returns an instruction descriptor with mostly valid values in the fields that all kinds have, and a few random bits.
uint32_t instruction_descriptor(const std::string &text) {
    const auto has = [&text](const char *word) { return text.find(word) != std::string::npos; };
    const bool scaled = has("kind::mx"), pair = has("group::2");
    const uint64_t m = scaled ? uint64_t(pair ? 2 : 1) << 27 : uint64_t(pair ? 16 : 8) << 24;
    const uint64_t n = (has(".ws") || happens(4) ? 8 << below(3) : 4) << 17;
    const uint64_t a = has("tf32") ? 2 : has("mxf4") ? 1 : below(2);
    const uint64_t b = has("tf32") || has("f16") || has("mxf4") ? a : below(2);
    uint64_t value = m | n | (has(".sp") ? 4 : 0) | a << 7 | b << 10 | (happens(4) ? below(16) << 13 : 0);
    value |= uint64_t(scaled ? 1 : 0) << 23 | uint64_t(scaled ? 0 : has("i8") ? 2 : 1) << 4;
    return uint32_t(value ^ (happens(5) ? uint64_t(1) << below(32) : 0));
}

sptc_status tcgen05(sptc_instruction *handle, const sptc_shape &) {
    const std::string text = sptc_text(handle);
    const int64_t images = int64_t(below(3)), ctas = text.find("group::2") != std::string::npos ? 2 : 1;
    const int64_t image = happens(5) ? int64_t(below(4096)) : 65536 * ctas;
    const bool one_image = happens(3), in_place = happens(3);
    Buffer tmem(images * ctas * 128 * 512 * 4), smem(one_image ? image : images * image);
    Buffer result(in_place ? 0 : images * ctas * 128 * 512 * 4);
    sptc_tcgen05_operands operands{};
    operands.images = spoiled(images), operands.tmem = tmem, operands.smem = smem, operands.result = result;
    if (in_place) operands.result = {tmem.bytes.data(), tmem.bytes.size()};
    operands.smem_stride = spoiled(one_image ? size_t(0) : size_t(image));
    const bool in_tensor = happens(2), scaled = text.find("kind::mx") != std::string::npos;
    operands.a = in_tensor ? tensor_address(100) : tensor_descriptor(), operands.b = tensor_descriptor();
    operands.d = 256 | (happens(20) ? tensor_address(512) : 0);
    if (text.find(".sp") != std::string::npos || happens(30))
        operands.e = tensor_address(100) & ~uint32_t(!happens(10));
    if (scaled || happens(30)) operands.scale_a = tensor_address(100), operands.scale_b = tensor_address(100);
    if (text.find(".ws") != std::string::npos || happens(30))
        operands.zero_column_mask = happens(10) ? randomness() : below(uint64_t(1) << 36) | below(512) << 39;
    operands.idesc = instruction_descriptor(text);
    if (happens(5)) operands.disable_output_lane[below(4)] = uint32_t(randomness());
    operands.enable_input_d = spoiled(int(below(2))), operands.scale_input_d = spoiled(happens(5) ? int(below(16)) : 0);
    operands.metadata = spoiled(happens(3) ? int(below(3)) : 2);
    return sptc_tcgen05(handle, happens(200) ? nullptr : &operands, spoiled(1 + int(below(3))));
}

sptc_status metadata(sptc_instruction *handle, const sptc_shape &shape) {
    const int64_t tiles = int64_t(below(4)), cells = tiles * shape.m * shape.chunks;
    Buffer e(tiles * shape.threads * 4), nibbles(cells), defined(cells);
    return sptc_metadata(handle, spoiled(tiles), e, spoiled(int(below(4))), nibbles, defined);
}

[[noreturn]] void fail(const char *what, const std::string &text) {
    std::printf("%s: %s\n", what, text.c_str());
    std::exit(1);
}

// Checks that a failed call has a sentence as its error message, and that a successful call has no message.
void check(sptc_status status, sptc_instruction *handle, const std::string &text) {
    const std::string said = sptc_last_error(handle);
    if ((status == SPTC_OK) != said.empty() && status != SPTC_NO_MEMORY)
        fail("status and error message disagree", text);
    if (!said.empty() && said.back() != '.') fail("the error message does not end in a full stop", said);
    if (status == SPTC_FAILED) fail("a call failed with an internal error", said);
}

struct Counts {
    unsigned long accepted = 0, in_tensor_memory = 0;
};

// Opens an instruction, and makes four calls with its handle, even if the instruction could not be opened.
void use(const std::string &text, const std::string &arch, Counts &counts) {
    static const char *const kernels[] = {"", "", "", "portable", "avx2", "avx512", "none"};
    sptc_instruction *handle = nullptr;
    const sptc_status opened = sptc_open(happens(200) ? 7 : SPTC_ABI, happens(300) ? nullptr : text.c_str(),
                                         happens(300) ? nullptr : arch.c_str(), &handle);
    check(opened, handle, text);
    sptc_shape shape{};
    const sptc_status described = sptc_get_shape(handle, &shape);
    check(described, handle, text);
    const bool shapeless = opened == SPTC_OK && std::string(sptc_text(handle)).find("cta_group") != std::string::npos;
    if ((opened == SPTC_OK) != (described == SPTC_OK || shapeless)) fail("opened without a shape", text);
    const sptc_status chosen = sptc_choose_kernels(handle, kernels[below(std::size(kernels))]);
    check(chosen, handle, text);
    for (int times = 0; times < 4; ++times) {
        sptc_status (*const calls_of[])(sptc_instruction *, const sptc_shape &) = {multiply, mma, wgmma, metadata,
                                                                                   tcgen05};
        const uint64_t which = shapeless && !happens(10) ? 4 : below(std::size(calls_of));
        const sptc_status status = calls_of[which](handle, shape);
        check(status, handle, text);
        counts.accepted += status == SPTC_OK, counts.in_tensor_memory += status == SPTC_OK && which == 4;
        if (opened != SPTC_OK && status == SPTC_OK) fail("a call for an unopened instruction succeeded", text);
    }
    sptc_close(handle);
}

}  // namespace

#ifdef SPTC_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = data + size, *line = std::find(data, end, '\n'), *tab = std::find(data, line, '\t');
    randomness.generator.seed(size);
    randomness.next = std::min(line + 1, end), randomness.end = end;
    Counts counts;
    use(std::string(data, tab), std::string(std::min(tab + 1, line), line), counts);
    return 0;
}
#else
int main(int count, char **words) {
    if (count != 4) return 2;
    randomness.generator.seed(std::strtoull(words[1], nullptr, 10));
    const unsigned long instructions = std::strtoul(words[2], nullptr, 10);
    std::vector<std::pair<std::string, std::string> > lines;
    std::ifstream file(words[3]);
    for (std::string text, arch; std::getline(file, text, '\t') && std::getline(file, arch);)
        lines.emplace_back(text, arch);
    Counts counts;
    for (unsigned long number = 0; number < instructions; ++number) {
        auto [text, arch] = lines[below(lines.size())];
        if (happens(10)) text = mutated(text);
        if (happens(40)) arch = mutated(arch);
        use(text, arch, counts);
    }
    std::printf("%lu instructions, %lu successful calls, %lu of these of tcgen05\n", instructions, counts.accepted,
                counts.in_tensor_memory);
    return counts.accepted && counts.in_tensor_memory ? 0 : 1;
}
#endif
