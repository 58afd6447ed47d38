// Greedy and beam search, for many sentences at once.
//
// Each thread searches a batch of sentences. A sentence leaves the batch when its search is over, and the next one
// takes its slots, so rows of different sentences may be at different positions. At each step all rows go through the
// decoder together; then every sentence decides on its own. No decision depends on what else is in the batch.
//
// One step of one sentence with beam size W: candidates are ordered by total (sum of log-probabilities, float32), then
// hypothesis, then token id; with W = 1 by the token's log-probability, then token id. An end token among the best W
// candidates finishes its hypothesis, the best W others continue; at the length limit the best W finish unchanged. A
// search is over when W hypotheses are finished (beam_finished); the other rules also require that the best unfinished
// total, divided by the length penalty of the limit (cannot_improve) or of the current length (no_better_now), is not
// above the worst of the best W finished scores. clearhead/decoding/search.py does the same operations on NumPy arrays,
// with more options.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "model.h"
#include "parallel.h"

namespace clearhead {

enum class StoppingRule { beam_finished, cannot_improve, no_better_now };
enum class FinishReason { end, length, blocked };

struct SearchSettings {
    int beam_size = 1, n_best = 1, min_length = 0, end_id = 0, start_id = 0, threads = 1;
    int batch_rows = 0;  // rows that a thread decodes together; 0: set by the core
    // Weights of at least this many bytes come from memory at every step, so as many rows as possible share each read.
    size_t large_weights = size_t{32} << 20;
    StoppingRule stopping_rule = StoppingRule::beam_finished;
    // False: hypotheses need no probabilities. Greedy search then compares logits and skips the softmax; its
    // hypotheses have no log_probs, and NaN as total and score.
    bool want_scores = true;
    std::vector<float> penalties;  // a score is total / penalties[length], the end token included in the length
    std::vector<int> suppressed;   // token ids that are never generated, ascending
};

struct SearchRequest {
    const int32_t* ids;                // the source, or the prompt of a decoder-only model
    int length, limit;                 // limit: tokens to generate at most, the end token included
    const int32_t* allowed = nullptr;  // shortlist: token ids ascending; null: all
    int num_allowed = 0;
    const volatile uint8_t* cancelled = nullptr;  // a flag that another thread may set
    double deadline = 0;                          // seconds of the monotonic clock; 0: none
};

struct Hypothesis {
    std::vector<int> tokens;       // without the end token
    std::vector<float> log_probs;  // of every token, the end token included
    float total, score;
    FinishReason reason;
};

struct SearchResult {
    std::vector<Hypothesis> hypotheses;  // best first; empty if the model returned no finite probabilities
    bool cancelled = false;
};

// Buffers of one thread, which the model stores for the next call.
struct Worker {
    Workspace work;
    KVCache cache;
    std::vector<Source> sources;
};

// Idle workers. Not a list with a mutex: a process that forks while another thread takes a worker would leave the mutex
// locked in the child forever.
class WorkerPool {
  public:
    WorkerPool() = default;
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;
    // Returns an idle worker, or a new one.
    std::unique_ptr<Worker> take();
    // Stores the worker, or frees it if all slots are in use.
    void put_back(std::unique_ptr<Worker> worker) noexcept;

  private:
    std::array<std::atomic<Worker*>, 64> idle_{};
};

// A worker from the pool, returned to it at the end.
class BorrowedWorker {
  public:
    explicit BorrowedWorker(WorkerPool& pool) : pool_(pool), worker_(pool.take()) {}
    ~BorrowedWorker() {
        worker_->work.team = nullptr;
        pool_.put_back(std::move(worker_));
    }
    Worker& operator*() { return *worker_; }

  private:
    WorkerPool& pool_;
    std::unique_ptr<Worker> worker_;
};

// Runs all searches. `is_interrupted` is called on the calling thread now and then; if it returns true, search throws
// Interrupted.
std::vector<SearchResult> search(const Model& model, WorkerPool& pool, const SearchSettings& settings,
                                 const std::vector<SearchRequest>& requests,
                                 const std::function<bool()>& is_interrupted);

}  // namespace clearhead
