// Work on several threads. Threads live as long as one call, so a process may fork between calls.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace clearhead {

// Thrown when the caller was interrupted, such as by Ctrl-C.
struct Interrupted {};

// Calls `work(is_caller)` on the calling thread and on up to `count` - 1 others. After an exception `stop` is set,
// which `work` must heed; the first exception is thrown again when all have returned. If the system has no more threads
// or no memory for them, fewer do the work.
inline void run_threads(size_t count, std::atomic<bool>& stop, const std::function<void(bool)>& work) {
    std::exception_ptr error;
    std::mutex mutex;
    auto run = [&](bool is_caller) {
        try {
            work(is_caller);
        } catch (...) {
            stop = true;
            std::lock_guard<std::mutex> lock(mutex);
            if (!error) error = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    try {
        threads.reserve(count);
        for (size_t i = 1; i < count; i++) threads.emplace_back(run, false);
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
    run(true);
    for (std::thread& thread : threads) thread.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace clearhead
