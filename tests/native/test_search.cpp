// Greedy and beam search against plain searches over step-by-step decoding, and its guarantees.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "decoding.h"

using namespace clearhead;

namespace {

struct Path {
    Ids tokens;
    float total = 0;
    std::vector<float> log_probs;
    float score = 0;
    int parent = 0;
};

// Beam search in plain loops over the log-probabilities of every token, with the rule beam_finished and no shortlist.
std::vector<Path> plain_search(const Model& model, const SearchSettings& settings, const Ids& source, int limit) {
    Decoder decoder(model, {source}, 1);
    const int width = settings.beam_size, vocabulary = model.settings.vocabulary;
    Ids input = has_encoder(model) ? Ids{settings.start_id} : source;
    std::vector<Path> live(1), finished;
    for (int length = 0; length < limit && (int)finished.size() < width; length++) {
        const std::vector<float> log_probs = decoder.step(input);
        if (!length) decoder.reorder(Ids(width, 0));
        std::vector<Path> choices;
        for (int row = 0; row < (int)live.size(); row++)
            for (int token = 0; token < vocabulary; token++) {
                const bool is_early = token == settings.end_id && length < settings.min_length;
                const auto& never = settings.suppressed;
                if (is_early || std::find(never.begin(), never.end(), token) != never.end()) continue;
                Path path = live[row];
                path.tokens.push_back(token);
                path.log_probs.push_back(log_probs[(size_t)row * vocabulary + token]);
                path.total += path.log_probs.back();
                path.parent = row;
                choices.push_back(path);
            }
        std::stable_sort(choices.begin(), choices.end(),
                         [](const Path& a, const Path& b) { return a.total > b.total; });
        live.clear();
        for (int rank = 0; rank < (int)choices.size() && (int)live.size() < width; rank++) {
            Path& path = choices[rank];
            const bool is_end = path.tokens.back() == settings.end_id;
            path.score = path.total / settings.penalties[path.log_probs.size()];
            if (rank < width && (is_end || length + 1 == limit)) finished.push_back(path);
            if (!is_end) live.push_back(path);
        }
        Ids parents;
        input.clear();
        for (const Path& path : live) {
            parents.push_back(path.parent);
            input.push_back(path.tokens.back());
        }
        decoder.reorder(parents);
    }
    std::stable_sort(finished.begin(), finished.end(), [](const Path& a, const Path& b) { return a.score > b.score; });
    finished.resize(std::min<size_t>(finished.size(), settings.n_best));
    return finished;
}

void check_hypotheses(const SearchResult& result, const std::vector<Path>& expected) {
    CHECK_EQUAL(result.hypotheses.size(), expected.size());
    for (size_t i = 0; i < std::min(result.hypotheses.size(), expected.size()); i++) {
        const Hypothesis& found = result.hypotheses[i];
        Ids tokens(found.tokens.begin(), found.tokens.end());
        if (found.reason == FinishReason::end) tokens.push_back(kEnd);
        CHECK(tokens == expected[i].tokens);
        CHECK(is_same(found.log_probs, expected[i].log_probs));
        CHECK(is_same(found.total, expected[i].total));
        CHECK(is_same(found.score, expected[i].score));
    }
}

std::vector<Shape> generators() { return {translator(), gated_translator(), language_model()}; }

// A bias that makes the end token about as probable as the best of the others.
Model model_that_ends(const Shape& shape, const char* isa = nullptr) {
    RandomTensors tensors(shape, 7);
    tensors.arrays.at("output.bias").values[kEnd] = 4.5f;
    return Model(shape.settings, tensors.view(), select_kernels(isa));
}

std::vector<Ids> some_sources(const Model& model) {
    const int vocabulary = has_encoder(model) ? model.settings.source_vocabulary : model.settings.vocabulary;
    return random_sequences({5, 1, 17, 13, 2, 7, 18, 11}, vocabulary);
}

}  // namespace

TEST(search_finds_what_plain_loops_find) {
    std::set<FinishReason> reasons;
    for (const bool int8 : {false, true})
        for (const Shape& shape : generators()) {
            const Model model = model_that_ends(with_int8(shape, int8));
            const std::vector<Ids> sources = some_sources(model);
            for (int beam_size : {1, 2, 5})
                for (int min_length : {0, 3}) {
                    SearchSettings settings = search_settings(beam_size);
                    settings.min_length = min_length;
                    const std::vector<SearchResult> found = run_search(model, settings, requests_of(sources));
                    for (size_t i = 0; i < sources.size(); i++) {
                        check_hypotheses(found[i], plain_search(model, settings, sources[i], kLimit));
                        for (const Hypothesis& each : found[i].hypotheses) reasons.insert(each.reason);
                    }
                }
        }
    CHECK(reasons.count(FinishReason::end) && reasons.count(FinishReason::length));
}

TEST(score_is_the_sum_of_log_probabilities_over_the_penalty) {
    const Model model = model_that_ends(translator());
    const std::vector<Ids> sources = some_sources(model);
    for (int beam_size : {1, 3}) {
        const SearchSettings settings = search_settings(beam_size);
        for (const SearchResult& result : run_search(model, settings, requests_of(sources)))
            for (const Hypothesis& each : result.hypotheses) {
                float total = 0;
                for (float log_prob : each.log_probs) total += log_prob;
                CHECK(is_same(each.total, total));
                CHECK(is_same(each.score, total / settings.penalties[each.log_probs.size()]));
                CHECK_EQUAL(each.log_probs.size(), each.tokens.size() + (each.reason == FinishReason::end));
            }
    }
}

TEST(sentences_in_a_batch_have_the_bits_that_they_have_alone) {
    for (const InstructionSet& isa : instruction_sets())
        for (const bool int8 : {false, true})
            for (const Shape& shape : generators()) {
                if (!isa.is_supported) continue;
                const Model model = model_that_ends(with_int8(shape, int8), isa.kernels->name);
                const std::vector<Ids> sources = some_sources(model);
                for (int beam_size : {1, 3}) {
                    std::vector<SearchResult> alone;
                    for (const Ids& source : sources)
                        alone.push_back(run_search(model, search_settings(beam_size), requests_of({source}))[0]);
                    for (const bool shares_products : {false, true})
                        for (int threads : {1, 3}) {
                            SearchSettings settings = search_settings(beam_size, threads);
                            settings.batch_rows = threads == 3 ? 2 * beam_size : 0;
                            if (shares_products) settings.large_weights = 0;
                            const std::vector<SearchResult> batch = run_search(model, settings, requests_of(sources));
                            for (size_t i = 0; i < sources.size(); i++) CHECK(is_same(batch[i], alone[i]));
                        }
                }
            }
}

TEST(workers_that_are_used_again_change_nothing) {
    const Model model = model_that_ends(translator());
    const std::vector<Ids> sources = some_sources(model);
    WorkerPool pool;
    for (int beam_size : {3, 1, 5, 3})
        for (size_t count : {8, 1, 3}) {
            const std::vector<Ids> some(sources.begin(), sources.begin() + count);
            const SearchSettings settings = search_settings(beam_size);
            const auto again = search(model, pool, settings, requests_of(some), [] { return false; });
            const auto fresh = run_search(model, settings, requests_of(some));
            for (size_t i = 0; i < count; i++) CHECK(is_same(again[i], fresh[i]));
        }
}

// A child of fork has one thread; a lock that another thread of the parent held would be held forever.
TEST(pool_works_in_a_child_of_a_process_whose_threads_use_it) {
    WorkerPool pool;
    for (int i = 0; i < 7; i++) pool.put_back(std::make_unique<Worker>());
    std::atomic<bool> is_over{false};
    std::thread other([&] {
        while (!is_over) BorrowedWorker worker(pool);
    });
    int status = 0;
    for (int i = 0; i < 31 && !status; i++) {
        const pid_t child = fork();
        if (!child) {
            alarm(10);  // ends a child that waits
            {
                BorrowedWorker worker(pool);
            }
            _exit(0);
        }
        CHECK_EQUAL(waitpid(child, &status, 0), child);
    }
    CHECK_EQUAL(status, 0);
    is_over = true;
    other.join();
}

TEST(greedy_search_without_scores_has_the_same_tokens) {
    for (const Shape& shape : generators()) {
        const Model model = model_that_ends(shape);
        const std::vector<Ids> sources = some_sources(model);
        SearchSettings settings = search_settings(1);
        const auto scored = run_search(model, settings, requests_of(sources));
        settings.want_scores = false;
        const auto found = run_search(model, settings, requests_of(sources));
        for (size_t i = 0; i < sources.size(); i++) {
            CHECK(found[i].hypotheses[0].tokens == scored[i].hypotheses[0].tokens);
            CHECK(found[i].hypotheses[0].log_probs.empty() && std::isnan(found[i].hypotheses[0].score));
        }
    }
}

TEST(shortlist_of_all_tokens_changes_nothing) {
    for (const bool int8 : {false, true}) {
        const Model model = model_that_ends(with_int8(translator(), int8));
        const std::vector<Ids> sources = some_sources(model);
        SearchSettings settings = search_settings(3);
        settings.suppressed.clear();
        std::vector<SearchRequest> requests = requests_of(sources);
        const auto expected = run_search(model, settings, requests);
        Ids all(model.settings.vocabulary);
        for (int token = 0; token < (int)all.size(); token++) all[token] = token;
        for (SearchRequest& asked : requests) {
            asked.allowed = all.data();
            asked.num_allowed = (int)all.size();
        }
        const auto found = run_search(model, settings, requests);
        for (size_t i = 0; i < sources.size(); i++) CHECK(is_same(found[i], expected[i]));
    }
}

TEST(shortlists_in_a_batch_allow_what_they_allow_alone) {
    for (const bool int8 : {false, true})
        for (const Shape& shape : generators()) {
            const Model model = model_that_ends(with_int8(shape, int8));
            const std::vector<Ids> sources = some_sources(model);
            std::vector<SearchRequest> requests = requests_of(sources);
            std::vector<Ids> lists;
            for (size_t i = 0; i < sources.size(); i++) {
                std::set<int32_t> list = {kEnd};
                for (int32_t id : random_ids(3 + 11 * (int)i, i, model.settings.vocabulary)) list.insert(id);
                lists.emplace_back(list.begin(), list.end());
            }
            for (size_t i = 0; i < sources.size(); i++) {
                requests[i].allowed = lists[i].data();
                requests[i].num_allowed = (int)lists[i].size();
            }
            for (int threads : {1, 3}) {
                const auto found = run_search(model, search_settings(3, threads), requests);
                for (size_t i = 0; i < sources.size(); i++) {
                    CHECK(is_same(found[i], run_search(model, search_settings(3), {requests[i]})[0]));
                    for (const Hypothesis& each : found[i].hypotheses)
                        for (int token : each.tokens)
                            CHECK(std::binary_search(lists[i].begin(), lists[i].end(), token));
                }
            }
        }
}

TEST(limits_and_least_lengths_are_kept) {
    for (const Shape& shape : generators()) {
        const Model model = model_that_ends(shape);
        const std::vector<Ids> sources = some_sources(model);
        for (int beam_size : {1, 3})
            for (int limit : {1, 2, 7}) {
                SearchSettings settings = search_settings(beam_size);
                settings.min_length = 2;
                for (const SearchResult& result : run_search(model, settings, requests_of(sources, limit))) {
                    CHECK(!result.hypotheses.empty());
                    for (const Hypothesis& each : result.hypotheses) {
                        CHECK((int)each.log_probs.size() <= limit);
                        CHECK(each.reason == FinishReason::length || (int)each.tokens.size() >= 2);
                    }
                }
            }
    }
}

TEST(cancelled_and_late_requests_give_nothing_and_change_no_other) {
    RandomTensors tensors(translator());
    tensors.arrays.at("output.bias").values[kEnd] = -99;  // only a limit ends a search
    const Model model(translator().settings, tensors.view(), select_kernels(nullptr));
    const std::vector<Ids> sources = some_sources(model);
    const auto expected = run_search(model, search_settings(2), requests_of(sources));
    const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    const uint8_t set = 1, unset = 0;
    for (int threads : {1, 3}) {
        std::vector<SearchRequest> requests = requests_of(sources);
        for (SearchRequest& asked : requests) asked.cancelled = &unset;
        requests[1].cancelled = &set;
        requests[2].deadline = now;
        requests[3].deadline = now + 1e6;
        const auto found = run_search(model, search_settings(2, threads), requests);
        for (size_t i = 0; i < sources.size(); i++) {
            const bool is_cancelled = i == 1 || i == 2;
            CHECK_EQUAL(found[i].cancelled, is_cancelled);
            if (is_cancelled)
                CHECK(found[i].hypotheses.empty());
            else
                CHECK(is_same(found[i], expected[i]));
        }
    }
}

TEST(model_without_finite_probabilities_gives_no_hypotheses) {
    const Shape shape = translator();
    RandomTensors tensors(shape);
    tensors.arrays.at("decoder.norm.bias").values[5] = std::numeric_limits<float>::quiet_NaN();
    for (const bool int8 : {false, true}) {
        const Model model(with_int8(shape, int8).settings, tensors.view(), select_kernels(nullptr));
        for (int beam_size : {1, 3})
            for (const bool want_scores : {true, false}) {
                SearchSettings settings = search_settings(beam_size);
                settings.want_scores = want_scores;
                for (const SearchResult& result : run_search(model, settings, requests_of(some_sources(model))))
                    CHECK(result.hypotheses.empty() && !result.cancelled);
            }
    }
}

TEST(wrong_requests_throw) {
    const Model model = random_model(translator()), writer = random_model(language_model());
    const Ids source = {5, 7, 11}, unknown = {5, 43}, negative = {-1}, empty, long_source(38, 5), list = {3, 5, 601};
    const SearchSettings good = search_settings(2);
    auto refuses = [&](const Model& which, const SearchSettings& settings, const SearchRequest& asked) {
        const Ids first = {5};
        return check::throws<std::invalid_argument>([&] { run_search(which, settings, {request(first), asked}); });
    };
    CHECK(!refuses(model, good, request(source)));
    for (const Ids& ids : {unknown, negative, empty, long_source}) CHECK(refuses(model, good, request(ids)));
    for (int limit : {0, -1, 38, kLimit + 1, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
        CHECK(refuses(model, good, request(source, limit)));
        CHECK(refuses(writer, good, request(source, limit)));
    }
    CHECK(refuses(writer, good, request(Ids(20, 5), 19)));  // 38 positions
    SearchRequest listed = request(source);
    listed.allowed = list.data();
    listed.num_allowed = 2;
    CHECK(refuses(model, good, listed));  // the first request has no shortlist
    for (int count : {0, 3}) {
        listed.num_allowed = count;
        CHECK_THROWS(std::invalid_argument, run_search(model, good, {listed}));
    }
    for (const Ids& unordered : {Ids{5, 3}, Ids{3, 3}, Ids{3, 7, 5}}) {
        listed.allowed = unordered.data();
        listed.num_allowed = (int)unordered.size();
        CHECK_THROWS(std::invalid_argument, run_search(model, good, {listed}));
    }
    for (float penalty :
         {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        SearchSettings settings = good;
        settings.penalties[2] = penalty;
        CHECK(refuses(model, settings, request(source)));
    }
    for (int SearchSettings::* field :
         {&SearchSettings::beam_size, &SearchSettings::n_best, &SearchSettings::threads}) {
        SearchSettings settings = good;
        settings.*field = 0;
        CHECK(refuses(model, settings, request(source)));
    }
    SearchSettings settings = good;
    settings.beam_size = 4097;
    CHECK(refuses(model, settings, request(source)));
    for (int start : {-1, 601}) {
        settings = good;
        settings.start_id = start;
        CHECK(refuses(model, settings, request(source)));
    }
    CHECK(refuses(random_model(text_encoder(true)), good, request(source)));
}

TEST(interrupted_search_throws_and_the_pool_works_afterwards) {
    Shape shape = language_model();
    shape.settings.max_positions = 1009;
    RandomTensors tensors(shape);
    tensors.arrays.at("output.bias").values[kEnd] = -99;
    const Model model(shape.settings, tensors.view(), select_kernels(nullptr));
    SearchSettings settings = search_settings(3, 3);
    settings.penalties.assign(1010, 1.0f);
    const std::vector<Ids> sources(40, Ids{5});
    WorkerPool pool;
    CHECK_THROWS(Interrupted, search(model, pool, settings, requests_of(sources, 1000), [] { return true; }));
    const auto again = search(model, pool, settings, requests_of({{7}}, 5), [] { return false; });
    CHECK(is_same(again[0], run_search(model, settings, requests_of({{7}}, 5))[0]));
}

// Whether the generic kernels, compiled with the flags of this file, have fused multiply-add.
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
constexpr bool kGenericIsFused = true;
#else
constexpr bool kGenericIsFused = false;
#endif
constexpr uint64_t kHash = 0x0b67a1a388408c68;  // with fused multiply-add; a change of any result changes it

// The same bits on every instruction set, architecture and compiler with fused multiply-add.
TEST(search_results_have_the_known_hash) {
    for (const InstructionSet& isa : instruction_sets()) {
        if (!isa.is_supported) continue;
        uint64_t hash = 14695981039346656037u;  // FNV-1a
        auto mix = [&hash](const void* data, size_t size) {
            for (size_t i = 0; i < size; i++)
                hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
        };
        for (const bool int8 : {false, true})
            for (const Shape& shape : generators()) {
                const Model model = model_that_ends(with_int8(shape, int8), isa.kernels->name);
                for (const SearchResult& result :
                     run_search(model, search_settings(3), requests_of(some_sources(model))))
                    for (const Hypothesis& each : result.hypotheses) {
                        mix(each.tokens.data(), each.tokens.size() * sizeof(int));
                        mix(each.log_probs.data(), each.log_probs.size() * sizeof(float));
                        mix(&each.score, sizeof(float));
                    }
            }
        std::printf("%s: hash of search results %016llx\n", isa.kernels->name, (unsigned long long)hash);
        if (kGenericIsFused || std::string(isa.kernels->name) != "generic") CHECK_EQUAL(hash, kHash);
    }
}
