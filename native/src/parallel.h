// Distribution of work over threads.
#ifndef SPTC_PARALLEL_H
#define SPTC_PARALLEL_H

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace sptc {

// Divides work into pieces 0 to `pieces` - 1 for several threads. Each thread, including the calling one, creates a
// worker by `make_worker()`. If workers throw, the exception of the piece with the lowest number is thrown again.
template <typename MakeWorker>
void in_parallel(int64_t pieces, int threads, MakeWorker make_worker) {
    std::atomic<int64_t> next{0};
    std::exception_ptr failure;
    int64_t failed = pieces;
    std::mutex failing;
    const auto work = [&] {
        int64_t number = pieces;
        try {
            auto worker = make_worker();
            for (number = next++; number < pieces; number = next++) worker(number);
        } catch (...) {
            const std::lock_guard<std::mutex> guard(failing);
            if (!failure || number < failed) failure = std::current_exception(), failed = number;
            next = pieces;  // after an exception, start no more pieces of work; those with lower numbers have started
        }
    };
    std::vector<std::thread> others;
    try {
        for (int64_t index = 1; index < std::min<int64_t>(threads, pieces); ++index) others.emplace_back(work);
    } catch (...) {  // if a thread cannot be started, fewer threads do the work
    }
    work();
    for (std::thread &other : others) other.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace sptc

#endif
