// Every allocation that fails throws std::bad_alloc in the caller; afterwards the same objects work.
//
// This file replaces the program's operator new, from which all memory of the core comes. The address sanitizer still
// sees the memory underneath and reports leaks.
#include <atomic>
#include <climits>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "check.h"
#include "decoding.h"

using namespace clearhead;

namespace {

std::atomic<long> remaining{LONG_MAX};  // allocations until one fails
std::atomic<bool> is_lasting{false};    // whether all after it fail too

void* allocate(size_t size, size_t alignment) {
    const long number = remaining--;
    if (number == 0 || (number < 0 && is_lasting)) throw std::bad_alloc();
    void* data = alignment ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
                           : std::malloc(size ? size : 1);
    if (!data) throw std::bad_alloc();
    return data;
}

}  // namespace

void* operator new(size_t size) { return allocate(size, 0); }
void* operator new(size_t size, std::align_val_t alignment) { return allocate(size, (size_t)alignment); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {  // std::stable_sort does without memory
    try {
        return allocate(size, 0);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { std::free(data); }

namespace {

// Calls `work` with the n-th allocation failing, for every n until it succeeds; `recover` after each failure. Returns
// the number of failures.
template <typename Work, typename Recover>
int fail_each_allocation(Work work, Recover recover) {
    for (int failures = 0, quiet = 0, n = 0;; n++) {
        const bool is_over = quiet == 16;  // the number of allocations may vary: threads share the work
        is_lasting = n % 2 == 1;
        remaining = n;
        bool is_failed = false;
        try {
            work();
        } catch (const std::bad_alloc&) {
            is_failed = true;
        }
        const bool is_reached = remaining.exchange(LONG_MAX) < 0;
        if (is_failed) {
            CHECK(is_reached);
            failures++;
            recover();
        }
        quiet = is_reached ? 0 : quiet + 1;
        if (is_over) return failures;
    }
}

std::vector<Shape> small_shapes() {
    std::vector<Shape> shapes = {translator(), with_int8(gated_translator()), language_model()};
    for (Shape& shape : shapes) {
        shape.settings.encoder_layers = shape.settings.encoder_layers ? 1 : 0;
        shape.settings.decoder_layers = 1;
        shape.settings.vocabulary = 37;
    }
    return shapes;
}

void check_same(const std::vector<SearchResult>& found, const std::vector<SearchResult>& expected) {
    CHECK_EQUAL(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); i++) CHECK(is_same(found[i], expected[i]));
}

}  // namespace

TEST(model_without_memory_leaks_nothing) {
    for (const Shape& shape : small_shapes()) {
        const RandomTensors tensors(shape);
        const Tensors views = tensors.view();
        const Kernels& kernels = select_kernels(nullptr);
        const size_t before = allocated_bytes();
        const int failures = fail_each_allocation([&] { Model(shape.settings, views, kernels); },
                                                  [&] { CHECK_EQUAL(allocated_bytes().load(), before); });
        CHECK(failures > 20);
    }
}

TEST(search_without_memory_throws_and_works_afterwards) {
    for (const Shape& shape : small_shapes()) {
        const Model model = random_model(shape);
        const std::vector<Ids> sources = random_sequences({2, 7, 5, 1}, 37);
        const Ids list = {1, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31};
        for (const bool is_listed : {false, true})
            for (int threads : {1, 3}) {
                SearchSettings settings = search_settings(2, threads);
                settings.batch_rows = 4;
                std::vector<SearchRequest> requests = requests_of(sources, 3);
                if (is_listed)
                    for (SearchRequest& request : requests) {
                        request.allowed = list.data();
                        request.num_allowed = (int)list.size();
                    }
                const std::vector<SearchResult> expected = run_search(model, settings, requests);
                const std::function<bool()> is_interrupted = [] { return false; };
                auto pool = std::make_unique<WorkerPool>();
                const int failures = fail_each_allocation(
                    [&] {  // either it fails, or fewer threads did all of the work
                        check_same(search(model, *pool, settings, requests, is_interrupted), expected);
                    },
                    [&] {
                        check_same(search(model, *pool, settings, requests, is_interrupted), expected);
                        pool = std::make_unique<WorkerPool>();  // the next call allocates its buffers too
                    });
                CHECK(failures > 50);
            }
    }
}

TEST(worker_without_memory_for_longer_sentences_works_afterwards) {
    for (const Shape& shape : small_shapes()) {
        const Model model = random_model(shape);
        const std::vector<Ids> short_ones = random_sequences({2}, 37), longer = random_sequences({17, 13, 18, 11}, 37);
        const SearchSettings settings = search_settings(2);
        const auto expected = run_search(model, settings, requests_of(longer, 17));
        auto pool = std::make_unique<WorkerPool>();
        auto run = [&] { return search(model, *pool, settings, requests_of(longer, 17), [] { return false; }); };
        auto prepare = [&] {
            pool = std::make_unique<WorkerPool>();
            search(model, *pool, settings, requests_of(short_ones, 2), [] { return false; });
        };
        prepare();
        const int failures = fail_each_allocation([&] { run(); },
                                                  [&] {
                                                      check_same(run(), expected);
                                                      prepare();
                                                  });
        CHECK(failures > 20);
    }
}

TEST(state_whose_call_failed_continues_as_before) {
    for (const Shape& shape : small_shapes()) {
        const Model model = random_model(shape);
        const std::vector<Ids> sources = random_sequences({7, 2}, 37), lists = {{3, 5}, {7, 11, 13}};
        // A chain of calls, each of which may be tried again after it failed.
        struct Run {
            std::unique_ptr<Decoder> decoder;
            size_t done = 0;
            std::vector<float> last;
        };
        auto advance = [&](Run& run) {
            const std::vector<std::function<void()>> calls = {
                [&] { run.decoder = std::make_unique<Decoder>(model, sources, 1); },
                [&] { run.last = run.decoder->step({5, 6, 7, 8}); },
                [&] { run.decoder->reorder({0, 0, 1, 1}); },
                [&] { run.last = run.decoder->step({9, 10, 11, 12}); },
                [&] { run.decoder->reorder({3, 2, 0, 1}); },
                [&] { run.last = run.decoder->step({1, 2, 3, 4}, true); },
                [&] { run.decoder->restrict(lists); },
                [&] { run.last = run.decoder->step({13, 14, 15, 16}); },
            };
            for (; run.done < calls.size(); run.done++) calls[run.done]();
        };
        Run undisturbed, run;
        advance(undisturbed);
        const int failures = fail_each_allocation(
            [&] {
                run = Run();
                advance(run);
            },
            [&] {
                advance(run);
                CHECK(is_same(run.last, undisturbed.last));
            });
        CHECK(failures > 50);
    }
}

// A step that failed has appended nothing, even if the rows are reordered before it is tried again.
TEST(reordering_after_a_failed_step_keeps_the_ancestors) {
    Shape shape = language_model();
    shape.settings.vocabulary = 37;
    const Model model = random_model(shape);
    auto run = [&](long failing) {
        Decoder decoder(model, {{}, {}}, 1);
        decoder.step({5, 6});
        const Ids more(2 * 16, 7), next = {8, 9};
        remaining = failing;
        try {
            decoder.step(more);
        } catch (const std::bad_alloc&) {
        }
        const bool is_failed = remaining.exchange(LONG_MAX) < 0 && decoder.state->position == 1;
        decoder.reorder({1, 0});
        decoder.step(next);
        return std::make_pair(is_failed, decoder.step(next));
    };
    Decoder undisturbed(model, {{}, {}}, 1);
    undisturbed.step({5, 6});
    undisturbed.reorder({1, 0});
    undisturbed.step({8, 9});
    const std::vector<float> expected = undisturbed.step({8, 9});
    int failures = 0;
    for (long n = 0;; n++) {
        const auto [is_failed, found] = run(n);
        if (!is_failed) break;
        failures++;
        CHECK(is_same(found, expected));
    }
    CHECK(failures > 3);
}

TEST(outputs_without_memory_throw_and_are_right_afterwards) {
    Shape shape = text_encoder(true);
    shape.settings.encoder_layers = 1;
    const Model model = random_model(shape);
    const std::vector<Ids> texts(11, random_ids(37, 3, 43));
    const std::vector<float> expected = encode_texts(model, texts, EncoderOutput::classes);
    for (int threads : {1, 3}) {
        auto run = [&] { return encode_texts(model, texts, EncoderOutput::classes, threads); };
        CHECK(fail_each_allocation(run, [&] { CHECK(is_same(run(), expected)); }) > 10);
    }
}
