#include "search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "beam.h"

namespace clearhead {

constexpr int kEncoderRows = 256;  // source tokens that are encoded together, unless one sentence has more
// Rows that a thread decodes together, by default: two tiles of the matrix product. More rows would share
// each read of the weights, but prefetching hides that, and their keys and values would no longer fit in the cache.
constexpr int kRows = 24;
// Threads share the products of one batch if the weights are large and each thread would have fewer rows than this.
constexpr int kRowsOfThread = 48, kSharedRows = 96;

static double monotonic_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

WorkerPool::~WorkerPool() {
    for (std::atomic<Worker*>& slot : idle_) delete slot.load();
}

std::unique_ptr<Worker> WorkerPool::take() {
    for (std::atomic<Worker*>& slot : idle_)
        if (Worker* worker = slot.exchange(nullptr)) return std::unique_ptr<Worker>(worker);
    return std::make_unique<Worker>();
}

void WorkerPool::put_back(std::unique_ptr<Worker> worker) noexcept {
    for (std::atomic<Worker*>& slot : idle_) {
        Worker* empty = nullptr;
        if (!slot.compare_exchange_strong(empty, worker.get())) continue;
        worker.release();
        return;
    }
}

namespace {

// One call of search, which several threads work on.
struct SharedSearch {
    const Model& model;
    const SearchSettings& settings;
    const std::vector<SearchRequest>& requests;
    std::vector<int> order;  // indices of the requests, long sources first
    size_t per_thread;       // number of requests per thread, rounded up
    std::atomic<size_t> next{0};
    std::atomic<bool> stop{false};
    std::vector<SearchResult> results{};
};

class ThreadSearch {
  public:
    ThreadSearch(SharedSearch& shared, const std::function<bool()>* is_interrupted, Worker& worker)
        : shared_(shared),
          model_(shared.model),
          settings_(shared.settings),
          is_interrupted_(is_interrupted),
          worker_(worker),
          width_(settings_.beam_size),
          num_candidates_(width_ + 2),
          is_normalized_(settings_.want_scores || width_ > 1 ||
                         settings_.stopping_rule != StoppingRule::beam_finished) {
        const int rows = settings_.batch_rows ? settings_.batch_rows : worker.work.team ? kSharedRows : kRows;
        const int sentences = (int)std::min<size_t>(shared.per_thread, std::max(1, rows / width_));
        if (worker_.cache.slots() != sentences * width_)
            worker_.cache = KVCache(model_.settings.decoder_layers, sentences * width_, model_.entry_width());
        worker_.sources.resize(sentences);
        beams_.resize(sentences);
        block_bans_.resize((model_.output.panels + kVocabularyPanels - 1) / kVocabularyPanels);
        for (int token : settings_.suppressed) {
            if (token < 0 || token >= model_.settings.vocabulary) continue;
            block_bans_[token / kBlock].push_back(token % kBlock);
        }
    }

    void run() {
        while (true) {
            admit();
            if (active_.empty() || is_stopped()) return;
            step();
            drop_cancelled(monotonic_seconds());
        }
    }

  private:
    static constexpr int kBlock = kVocabularyPanels * kPanel;

    // Returns whether another thread failed. On the calling thread, throws Interrupted if the caller was interrupted.
    bool is_stopped() {
        const double now = monotonic_seconds();
        if (is_interrupted_ && now - last_check_ > 0.05) {
            if ((*is_interrupted_)()) throw Interrupted();
            last_check_ = now;
        }
        return shared_.stop;
    }

    // Fills free slots: a few sentences are encoded together.
    void admit() {
        const size_t capacity = beams_.size();
        if (shared_.next >= shared_.order.size() || active_.size() > capacity - (capacity + 3) / 4)
            return;  // wait until a quarter is free
        std::vector<bool> is_used(capacity);
        for (int slot : active_) is_used[slot] = true;
        std::vector<int> slots;
        for (size_t slot = 0; slot < capacity; slot++)
            if (!is_used[slot]) slots.push_back((int)slot);
        size_t num_admitted = 0;
        while (num_admitted < slots.size()) {
            const size_t number = shared_.next++;
            if (number >= shared_.order.size()) break;
            if (is_cancelled(shared_.order[number], monotonic_seconds())) continue;
            const int request_index = shared_.order[number];
            beams_[slots[num_admitted]] = Beam(model_, settings_, shared_.requests[request_index], request_index);
            active_.push_back(slots[num_admitted++]);
        }
        if (model_.settings.architecture == Architecture::encoder_decoder)
            encode(slots, num_admitted);
        else
            for (size_t i = 0; i < num_admitted; i++) read_prompt(slots[i]);
    }

    void encode(const std::vector<int>& slots, size_t num_admitted) {
        for (size_t first = 0, last; first < num_admitted && !is_stopped(); first = last) {
            std::vector<int> lengths;
            std::vector<int32_t> ids;
            for (last = first; last < num_admitted; last++) {
                const SearchRequest& request = *beams_[slots[last]].request;
                if (last > first && ids.size() + request.length > kEncoderRows) break;
                ids.insert(ids.end(), request.ids, request.ids + request.length);
                lengths.push_back(request.length);
            }
            const Activations& states = model_.encode(worker_.work, ids.data(), lengths);
            int row = 0;
            for (size_t i = first; i < last; i++) {
                Source& source = worker_.sources[slots[i]];
                model_.attend_to(worker_.work, states, row, lengths[i - first], source);
                beams_[slots[i]].source = &source;
                row += lengths[i - first];
            }
        }
    }

    // Fills the cache with all tokens of a prompt but the last, which is the first row of the search.
    void read_prompt(int slot) {
        Beam& beam = beams_[slot];
        const SearchRequest& request = *beam.request;
        const int first_slot = slot * width_;
        for (int start = 0; start + 1 < request.length && !is_stopped(); start += kEncoderRows) {
            rows_.clear();
            for (int p = start; p < std::min(request.length - 1, start + kEncoderRows); p++)
                rows_.push_back({request.ids[p], p, first_slot, first_slot, beam.ancestors.data(), nullptr});
            model_.decode(worker_.work, rows_, worker_.cache);
        }
    }

    void step() {
        rows_.clear();
        row_beams_.clear();
        for (int slot : active_) {
            Beam& beam = beams_[slot];
            for (int w = 0; w < beam.live; w++) {
                rows_.push_back({beam.last_tokens[w], beam.prompt - 1 + beam.length, slot * width_ + w, slot * width_,
                                 beam.ancestors.data() + (size_t)w * beam.capacity, beam.source});
                row_beams_.push_back(&beam);
            }
        }
        const Activations& states = model_.decode(worker_.work, rows_, worker_.cache);
        scan_vocabulary(states);
        size_t num_active = 0;
        for (size_t i = 0, row = 0; i < active_.size(); i++) {
            Beam& beam = beams_[active_[i]];
            const int live = beam.live;
            if (advance(beam, states, (int)row))
                active_[num_active++] = active_[i];
            else
                shared_.results[beam.request_index].hypotheses = beam.take_finished(settings_.n_best, is_normalized_);
            row += live;
        }
        active_.resize(num_active);
    }

    VocabularyScan new_scan(int row, bool is_normalized) {
        VocabularyScan scan{};
        scan.is_normalized = is_normalized;
        scan.maximum = -3.0e38f;
        scan.max_candidates = num_candidates_;
        scan.best = candidates_.data() + (size_t)row * num_candidates_;
        return scan;
    }

    // Finds the best candidates and the normalization of every row.
    void scan_vocabulary(const Activations& states) {
        const int count = (int)rows_.size();
        candidates_.resize((size_t)count * num_candidates_);
        scans_.clear();
        for (int row = 0; row < count; row++) scans_.push_back(new_scan(row, is_normalized_));
        const bool has_shortlists = row_beams_[0]->request->allowed;  // all sentences or none
        for (int row = 0, end; row < count; row = end) {
            for (end = row + 1; end < count && (!has_shortlists || row_beams_[end] == row_beams_[row]);) end++;
            scan_rows(states, row, end);
        }
    }

    // Scans the rows [first, last), which have one output layer.
    void scan_rows(const Activations& states, int first, int last) {
        const Linear& output = *row_beams_[first]->output;
        Activations first_states = from_row(states, first);
        const int rows = last - first;
        float* logits = worker_.work.logits.data();
        for (int panel = 0; panel < output.panels; panel += kVocabularyPanels) {
            const int end = std::min(panel + kVocabularyPanels, output.panels), columns = (end - panel) * kPanel;
            model_.apply_panels(worker_.work, output, panel, end, first_states, rows, logits, kBlock, Epilogue::store);
            for (int row = first; row < last; row++) {
                const Beam& beam = *row_beams_[row];
                bans_.clear();
                if (!beam.shortlist) bans_ = block_bans_[panel / kVocabularyPanels];
                if (beam.length < settings_.min_length) ban_end(*beam.request, panel * kPanel, columns);
                model_.kernels.scan(scans_[row], logits + (size_t)(row - first) * kBlock, columns, panel * kPanel,
                                    bans_.data(), (int)bans_.size());
            }
        }
    }

    void ban_end(const SearchRequest& request, int first_column, int columns) {
        int column = settings_.end_id;
        if (request.allowed) {
            const int32_t* found =
                std::lower_bound(request.allowed, request.allowed + request.num_allowed, settings_.end_id);
            if (found == request.allowed + request.num_allowed || *found != settings_.end_id) return;
            column = (int)(found - request.allowed);
        }
        if (column >= first_column && column < first_column + columns) bans_.push_back(column - first_column);
    }

    // Returns whether the best logit of a row without softmax certainly has the highest log-probability, too. A
    // log-probability is a logit minus a constant of at most `maximum` + log(vocabulary); rounding could make the best
    // two equal.
    static bool has_clear_maximum(const VocabularyScan& scan, const Kernels& kernels) {
        const float log_sum = kernels.log_sum(scan);
        if (scan.num_candidates < 1 || log_sum != log_sum) return false;
        const float best = scan.best[0].logit;
        return scan.num_candidates == 1 || best - scan.best[1].logit > 1e-6f * (32 + scan.maximum - best);
    }

    // Advances the hypotheses of a sentence by one token; returns false if its search is over.
    bool advance(Beam& beam, const Activations& states, int first_row) {
        bool is_number = true;
        choices_.clear();
        if (!is_normalized_ && !has_clear_maximum(scans_[first_row], model_.kernels)) {
            scans_[first_row] = new_scan(first_row, true);
            scan_rows(states, first_row, first_row + 1);
        }
        for (int w = 0; w < beam.live; w++) {
            const VocabularyScan& scan = scans_[first_row + w];
            const float log_sum = scan.is_normalized ? model_.kernels.log_sum(scan) : 0;
            is_number = is_number && log_sum == log_sum;
            if (log_sum != log_sum) continue;
            for (int i = 0; i < scan.num_candidates; i++)
                add_choice(beam, w, scan.best[i].token, scan.best[i].logit - log_sum);
        }
        std::sort(choices_.begin(), choices_.end(), is_before);
        resolve_ties(beam, states, first_row);
        const bool is_last = beam.length + 1 >= beam.request->limit;
        next_beam_.clear();
        for (int rank = 0; rank < (int)choices_.size() && ((int)next_beam_.size() < width_ || rank < width_); rank++) {
            const Choice& choice = choices_[rank];
            const bool is_end = choice.token == settings_.end_id;
            if (rank < width_ && (is_end || is_last)) beam.finish(settings_, choice, is_end);
            if (!is_end && (int)next_beam_.size() < width_) next_beam_.push_back(choice);
        }
        if (is_last || next_beam_.empty()) {
            if (beam.finished.empty() && is_number) beam.finish_blocked(settings_);
            return false;
        }
        if (beam.is_done(settings_, next_beam_[0])) return false;
        beam.keep(next_beam_);
        return true;
    }

    void add_choice(const Beam& beam, int parent, int index, float log_prob) {
        if (index >= beam.output->outputs) return;  // a column that pads the last panel
        const float total = beam.totals[parent] + log_prob;
        if (total > -std::numeric_limits<float>::infinity())
            choices_.push_back({width_ == 1 ? log_prob : total, total, log_prob, parent,
                                beam.request->allowed ? (int)beam.request->allowed[index] : index});
    }

    // The candidates of a row are selected by logit. After rounding, the total of a token that was not selected may
    // equal that of a candidate; the token id then decides, so all totals of that row are compared.
    void resolve_ties(Beam& beam, const Activations& states, int first_row) {
        int num_continuing = 0;
        size_t num_relevant = 0;  // choices up to the last one that continues
        while (num_relevant < choices_.size() && num_continuing < width_)
            num_continuing += choices_[num_relevant++].token != settings_.end_id;
        if (!num_relevant) return;
        const float lowest_rank = choices_[num_relevant - 1].rank;
        bool is_changed = false;
        for (int w = 0; w < beam.live; w++) {
            const VocabularyScan& scan = scans_[first_row + w];
            if (scan.num_candidates < num_candidates_ || !scan.is_normalized) continue;
            const float log_sum = model_.kernels.log_sum(scan),
                        log_prob = scan.best[num_candidates_ - 1].logit - log_sum;
            if (!((width_ == 1 ? log_prob : beam.totals[w] + log_prob) >= lowest_rank)) continue;
            compare_all(beam, states, first_row + w, w, log_sum);
            is_changed = true;
        }
        if (is_changed) std::sort(choices_.begin(), choices_.end(), is_before);
    }

    void compare_all(Beam& beam, const Activations& states, int row, int w, float log_sum) {
        const SearchRequest& request = *beam.request;
        const Linear& output = *beam.output;
        Activations state = from_row(states, row);
        std::vector<float> logits((size_t)output.panels * kPanel);
        model_.kernels.linear(state, 1, output, 0, output.panels, Epilogue::store, logits.data(), 0);
        std::vector<Choice> other_choices;
        choices_.swap(other_choices);
        other_choices.erase(
            std::remove_if(other_choices.begin(), other_choices.end(), [w](const Choice& c) { return c.parent == w; }),
            other_choices.end());
        for (int index = 0; index < output.outputs; index++) {
            const int token = request.allowed ? request.allowed[index] : index;
            const bool is_suppressed =
                !request.allowed && std::binary_search(settings_.suppressed.begin(), settings_.suppressed.end(), token);
            if (is_suppressed || (token == settings_.end_id && beam.length < settings_.min_length)) continue;
            add_choice(beam, w, index, logits[index] - log_sum);
        }
        const size_t num_best = std::min(choices_.size(), (size_t)num_candidates_);
        std::partial_sort(choices_.begin(), choices_.begin() + num_best, choices_.end(), is_before);
        choices_.resize(num_best);
        choices_.insert(choices_.end(), other_choices.begin(), other_choices.end());
    }

    // Returns whether a request is cancelled, and sets its result in that case.
    bool is_cancelled(int request_index, double now) {
        const SearchRequest& request = shared_.requests[request_index];
        const bool is_late = request.deadline > 0 && now > request.deadline;
        if (!is_late && !(request.cancelled && *request.cancelled)) return false;
        shared_.results[request_index].cancelled = true;
        return true;
    }

    void drop_cancelled(double now) {
        size_t num_active = 0;
        for (int slot : active_)
            if (!is_cancelled(beams_[slot].request_index, now)) active_[num_active++] = slot;
        active_.resize(num_active);
    }

    SharedSearch& shared_;
    const Model& model_;
    const SearchSettings& settings_;
    const std::function<bool()>* is_interrupted_;  // null: not the calling thread
    double last_check_ = monotonic_seconds();
    Worker& worker_;
    const int width_;
    const int num_candidates_;  // per row: W + 1 can be used, and one more shows whether there are ties
    const bool is_normalized_;  // false: greedy search over logits

    std::vector<Beam> beams_;  // by slot
    std::vector<int> active_;  // slots of sentences whose search continues
    std::vector<DecoderRow> rows_;
    std::vector<Beam*> row_beams_;
    std::vector<VocabularyScan> scans_;
    std::vector<Candidate> candidates_;
    std::vector<Choice> choices_, next_beam_;
    std::vector<int> bans_;
    std::vector<std::vector<int>> block_bans_;
};

void check_requests(const Model& model, const SearchSettings& settings, const std::vector<SearchRequest>& requests) {
    const Settings& s = model.settings;
    if (s.architecture == Architecture::encoder) throw std::invalid_argument("this model does not generate text");
    if (settings.beam_size < 1 || settings.beam_size > 4096)
        throw std::invalid_argument("beam size outside of 1 to 4096");
    if (settings.n_best < 1) throw std::invalid_argument("n_best must be positive");
    if (settings.threads < 1 || settings.threads > 4096) throw std::invalid_argument("threads outside of 1 to 4096");
    if (settings.start_id < 0 || settings.start_id >= s.vocabulary) throw std::invalid_argument("unknown start id");
    for (float penalty : settings.penalties)
        if (!(penalty > 0 && penalty <= std::numeric_limits<float>::max()))
            throw std::invalid_argument("length penalties must be positive and finite");
    for (const SearchRequest& request : requests) {
        const bool has_encoder = s.architecture == Architecture::encoder_decoder;
        const int64_t positions = (int64_t)request.limit + (has_encoder ? 0 : request.length - 1);
        if (request.length < 1 || request.length > s.max_positions)
            throw std::invalid_argument("a source is empty or too long");
        if (request.limit < 1 || positions > s.max_positions)
            throw std::invalid_argument("a length limit is out of range");
        if ((size_t)request.limit >= settings.penalties.size()) throw std::invalid_argument("too few length penalties");
        model.check_ids(request.ids, request.length, has_encoder ? s.source_vocabulary : s.vocabulary);
        if (!request.allowed != !requests[0].allowed)
            throw std::invalid_argument("only some requests have a shortlist");
        if (request.allowed) model.check_ids(request.allowed, request.num_allowed, s.vocabulary);
        if (request.allowed && request.num_allowed < 1) throw std::invalid_argument("an empty shortlist");
        for (int i = 1; i < request.num_allowed; i++)
            if (request.allowed[i - 1] >= request.allowed[i])
                throw std::invalid_argument("the ids of a shortlist must ascend");
    }
}

}  // namespace

std::vector<SearchResult> search(const Model& model, WorkerPool& pool, const SearchSettings& settings,
                                 const std::vector<SearchRequest>& requests,
                                 const std::function<bool()>& is_interrupted) {
    check_requests(model, settings, requests);
    std::vector<int> order(requests.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return requests[a].length > requests[b].length; });
    const size_t rows = requests.size() * settings.beam_size;
    const bool is_shared =
        model.weight_bytes() >= settings.large_weights && rows < (size_t)settings.threads * kRowsOfThread;
    const size_t threads = is_shared ? 1 : std::min<size_t>(settings.threads, requests.size());
    const size_t per_thread = (requests.size() + threads - 1) / std::max<size_t>(1, threads);
    SharedSearch shared{model, settings, requests, std::move(order), per_thread};
    shared.results.resize(requests.size());
    Team team(is_shared ? settings.threads : 1);
    run_threads(threads, shared.stop, is_interrupted, [&](bool is_caller) {
        BorrowedWorker worker(pool);
        (*worker).work.team = team.size() > 1 ? &team : nullptr;
        ThreadSearch(shared, is_caller ? &is_interrupted : nullptr, *worker).run();
    });
    return std::move(shared.results);
}

}  // namespace clearhead
