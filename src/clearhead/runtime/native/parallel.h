// Work on several threads. Threads live as long as one call, so a process may fork between calls.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
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
// at which `work` must return soon; the first exception is thrown again when all have returned. While the caller waits
// for the others it polls `is_interrupted`. If the system has no more threads or no memory for them, fewer threads
// work.
inline void run_threads(size_t count, std::atomic<bool>& stop, const std::function<bool()>& is_interrupted,
                        const std::function<void(bool)>& work) {
    std::exception_ptr error;
    std::mutex mutex;
    std::condition_variable finished;
    size_t running = 0;  // other threads
    auto run = [&](bool is_caller) {
        std::exception_ptr caught;
        try {
            work(is_caller);
        } catch (...) {
            stop = true;
            caught = std::current_exception();
        }
        std::lock_guard<std::mutex> lock(mutex);
        if (!error) error = caught;
        if (!is_caller && --running == 0) finished.notify_one();
    };
    std::vector<std::thread> threads;
    try {
        threads.reserve(count);
        for (size_t i = 1; i < count; i++) {
            std::lock_guard<std::mutex> lock(mutex);
            threads.emplace_back(run, false);
            running++;
        }
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
    run(true);
    std::unique_lock<std::mutex> lock(mutex);
    while (!finished.wait_for(lock, std::chrono::milliseconds(50), [&] { return running == 0; })) {
        if (stop) continue;
        lock.unlock();
        const bool is_over = is_interrupted();
        lock.lock();
        if (!is_over) continue;
        stop = true;
        if (!error) error = std::make_exception_ptr(Interrupted());
    }
    lock.unlock();
    for (std::thread& thread : threads) thread.join();
    if (error) std::rethrow_exception(error);
}

// The calling thread and helpers that compute parts of many short jobs together. Helpers wait for a job in a loop,
// since a matrix product takes less time than waking a sleeping thread; they end with the team.
class Team {
  public:
    // Creates a team of `count` members, or of fewer if the system has no more threads or no memory for them.
    explicit Team(int count) {
        try {
            helpers_.reserve(count);
            for (int member = 1; member < count; member++) helpers_.emplace_back([this, member] { help(member); });
        } catch (const std::system_error&) {
        } catch (const std::bad_alloc&) {
        }
    }
    ~Team() {
        job_ = nullptr;
        number_.fetch_add(1, std::memory_order_release);
        for (std::thread& helper : helpers_) helper.join();
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    // Calls job(member, size of the team) on every member, the calling thread being member 0. The job must not throw.
    void run(const std::function<void(int, int)>& job) {
        job_ = &job;
        unfinished_.store((int)helpers_.size(), std::memory_order_relaxed);
        number_.fetch_add(1, std::memory_order_release);
        job(0, size());
        wait_until([&] { return unfinished_.load(std::memory_order_acquire) == 0; });
    }
    int size() const { return (int)helpers_.size() + 1; }

  private:
    // Yields the CPU now and then, in case there are more threads than cores.
    template <typename Condition>
    static void wait_until(Condition is_met) {
        for (int tries = 1; !is_met(); tries++)
            if (tries % 1024 == 0) std::this_thread::yield();
    }
    void help(int member) {
        for (unsigned seen = 0;; seen++) {
            wait_until([&] { return number_.load(std::memory_order_acquire) != seen; });
            if (!job_) return;
            (*job_)(member, size());  // all helpers exist: run() is called after the constructor
            unfinished_.fetch_sub(1, std::memory_order_release);
        }
    }

    const std::function<void(int, int)>* job_ = nullptr;
    std::atomic<unsigned> number_{0};  // of the job
    std::atomic<int> unfinished_{0};   // helpers at work
    std::vector<std::thread> helpers_;
};

}  // namespace clearhead
