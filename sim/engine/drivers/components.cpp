// Driver of combinational components: applies input vectors and records output vectors.
#include <cstring>

#include "model.h"

// Place of a port in a test vector: index of the port in `Ports::every`, first byte in the vector, size in bytes.
struct Place {
    int32_t port, offset, size;
};

// Layout of a test vector: places of the ports in the vector, number of ports, and size of the vector in bytes.
struct Vectors {
    const Place *places;
    size_t count, bytes;
};

extern "C" void *components_create() { return new Driven; }
extern "C" void components_destroy(void *driven) { delete static_cast<Driven *>(driven); }
extern "C" void components_run(void *driven, size_t count, const Vectors *inputs, const char *in,
                               const Vectors *outputs, char *out) {
    auto &[model, ports] = *static_cast<Driven *>(driven);
    for (size_t number = 0; number < count; ++number, in += inputs->bytes, out += outputs->bytes) {
        for (const Place *of = inputs->places; of < inputs->places + inputs->count; ++of)
            std::memcpy(ports.every[of->port], in + of->offset, of->size);
        model.eval();
        for (const Place *of = outputs->places; of < outputs->places + outputs->count; ++of)
            std::memcpy(out + of->offset, ports.every[of->port], of->size);
    }
}
