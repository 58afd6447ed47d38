// Python binding: module clearhead.runtime._core, limited C API of Python 3.11 (one binary for all later versions).
//
// All arguments are checked here or where they are used; C++ exceptions become Python exceptions.
#include <Python.h>

#include <algorithm>
#include <deque>

#include "binding.h"
#include "dispatch.h"
#include "model.h"
#include "search.h"
#include "stepwise.h"

namespace {

using namespace clearhead;

Settings read_settings(PyObject* settings) {
    constexpr int kMany = 1 << 24;
    Settings s;
    s.architecture = (Architecture)get_integer(settings, "architecture", 0, 2);
    s.encoder_layers = get_integer(settings, "encoder_layers", 0, 10000);
    s.decoder_layers = get_integer(settings, "decoder_layers", 0, 10000);
    s.width = get_integer(settings, "width", 1, 1 << 20);
    s.feed_forward = get_integer(settings, "feed_forward", 1, 1 << 20);
    s.heads = get_integer(settings, "heads", 1, 1 << 14);
    s.key_width = get_integer(settings, "key_width", 1, 1 << 16);
    s.value_width = get_integer(settings, "value_width", 1, 1 << 16);
    s.vocabulary = get_integer(settings, "vocabulary", 1, kMany);
    s.source_vocabulary = get_integer(settings, "source_vocabulary", 1, kMany);
    s.max_positions = get_integer(settings, "max_positions", 1, kMany);
    s.labels = get_integer(settings, "labels", 0, kMany);
    s.segments = get_integer(settings, "segments", 0, 1 << 16);
    s.query_scale = get_float(settings, "query_scale");
    s.embedding_scale = get_float(settings, "embedding_scale");
    s.output_scale = get_float(settings, "output_scale");
    s.norm_epsilon = get_float(settings, "norm_epsilon");
    s.norm = (NormKind)get_integer(settings, "norm", 1, 3);
    s.activation = (Activation)get_integer(settings, "activation", 0, 3);
    s.pooler_activation = (Activation)get_integer(settings, "pooler_activation", 0, 4);
    s.pooling = (Pooling)get_integer(settings, "pooling", 0, 2);
    s.positions = (Positions)get_integer(settings, "positions", 0, 3);
    s.bias = get_integer(settings, "bias", 0, 1);
    s.output_bias = get_integer(settings, "output_bias", 0, 1);
    s.pre_norm = get_integer(settings, "pre_norm", 0, 1);
    s.final_norm = get_integer(settings, "final_norm", 0, 1);
    s.gated = get_integer(settings, "gated", 0, 1);
    s.embedding_norm = get_integer(settings, "embedding_norm", 0, 1);
    s.int8 = get_integer(settings, "int8", 0, 1);
    s.has_masked_head = get_integer(settings, "has_masked_head", 0, 1);
    s.has_classifier = get_integer(settings, "has_classifier", 0, 1);
    s.has_pooler = get_integer(settings, "has_pooler", 0, 1);
    return s;
}

// ---- The type Model

struct ModelObject {
    PyObject_HEAD Model* model;
    WorkerPool* pool;
};

ModelObject& of(PyObject* self) { return *reinterpret_cast<ModelObject*>(self); }

std::unique_ptr<Model> build_model(PyObject* settings, PyObject* tensors, const char* isa) {
    Tensors named;
    std::deque<Array<const float>> arrays;
    PyObject *name, *value;
    Py_ssize_t index = 0;
    while (PyDict_Next(tensors, &index, &name, &value)) {
        const Reference text(PyUnicode_AsUTF8String(name));
        const Array<const float>& array = arrays.emplace_back(value);
        require(static_cast<bool>(array), "a tensor is None");
        named.add(PyBytes_AsString(text.get()), {array.data(), array.shape()});
    }
    const Settings read = read_settings(settings);
    WithoutGil without;
    auto model = std::make_unique<Model>(read, named, select_kernels(isa));
    const std::string unused = named.unused();
    if (!unused.empty()) throw std::invalid_argument("the tensor " + unused + " does not belong to the model");
    return model;
}

PyObject* make_model(PyObject* type, PyObject* settings, PyObject* tensors, const char* isa) {
    auto model = build_model(settings, tensors, isa);
    auto pool = std::make_unique<WorkerPool>();
    auto allocate = (allocfunc)PyType_GetSlot((PyTypeObject*)type, Py_tp_alloc);
    Reference self(allocate((PyTypeObject*)type, 0));
    of(self.get()).model = model.release();
    of(self.get()).pool = pool.release();
    return self.release();
}

PyObject* model_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    return Method<make_model>::call((PyObject*)type, arguments);
}

void model_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    delete of(self).pool;
    delete of(self).model;
    auto release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

// A computation on several threads, without the interpreter lock.
struct Computation {
    Computation(PyObject* self, int threads)
        : execution{*of(self).pool, std::max(1, threads), [this] { return without.check_signals(); }} {}
    WithoutGil without;
    Execution execution;
};

// ---- Search

PyObject* hypothesis_tuple(const Hypothesis& hypothesis) {
    static const char* const kReasons[] = {"end", "length", "blocked"};
    const Reference tokens(list_of(hypothesis.tokens, [](int token) { return PyLong_FromLong(token); }));
    const Reference log_probs(list_of(hypothesis.log_probs, [](float x) { return PyFloat_FromDouble(x); }));
    return Py_BuildValue("(OddOs)", tokens.get(), (double)hypothesis.score, (double)hypothesis.total, log_probs.get(),
                         kReasons[(int)hypothesis.reason]);
}

PyObject* result_list(const SearchResult& result) {
    if (result.cancelled) Py_RETURN_NONE;
    return list_of(result.hypotheses, hypothesis_tuple);
}

PyObject* model_search(PyObject* self, Sequences sources, Array<const int32_t> limits, PyObject* options,
                       Array<const float> penalties, Array<const int32_t> suppressed, Sequences allowed,
                       PyObject* cancel_flags, Array<const double> deadlines) {
    require(PyList_Check(cancel_flags), "expected a list of cancel flags");
    std::deque<Array<const uint8_t>> cancelled;  // one byte, or None, for each source; none: no list
    for (Py_ssize_t i = 0; i < PyList_Size(cancel_flags); i++) cancelled.emplace_back(PyList_GetItem(cancel_flags, i));
    SearchSettings settings;
    settings.beam_size = get_integer(options, "beam_size");
    settings.n_best = get_integer(options, "n_best");
    settings.min_length = get_integer(options, "min_length");
    settings.end_id = get_integer(options, "end_id");
    settings.start_id = get_integer(options, "start_id");
    settings.threads = get_integer(options, "threads");
    settings.batch_rows = get_integer(options, "batch_rows");
    settings.stopping_rule = (StoppingRule)get_integer(options, "stopping_rule", 0, 2);
    settings.want_scores = get_integer(options, "want_scores", 0, 1);
    settings.penalties.assign(penalties.data(), penalties.data() + penalties.size());
    settings.suppressed.assign(suppressed.data(), suppressed.data() + suppressed.size());
    std::sort(settings.suppressed.begin(), settings.suppressed.end());
    const size_t count = sources.lengths.size();
    require(limits.size() == count, "expected a limit for each source");
    require(cancelled.empty() || cancelled.size() == count, "expected a cancel flag for each source");
    require(!deadlines || deadlines.size() == count, "expected a deadline for each source");
    require(!allowed || allowed.lengths.size() == count, "expected a shortlist for each source");
    std::vector<SearchRequest> requests(count);
    const int32_t *source = sources.ids.data(), *list = allowed.ids.data();
    for (size_t i = 0; i < count; i++) {
        SearchRequest& request = requests[i];
        request.ids = source;
        request.length = sources.lengths[i];
        request.limit = limits.data()[i];
        source += request.length;
        if (allowed) {
            request.allowed = list;
            request.num_allowed = allowed.lengths[i];
            list += request.num_allowed;
        }
        if (!cancelled.empty() && cancelled[i]) {
            require(cancelled[i].size() == 1, "expected a cancel flag of one byte");
            request.cancelled = cancelled[i].data();
        }
        request.deadline = deadlines ? deadlines.data()[i] : 0;
    }
    std::vector<SearchResult> results;
    {
        WithoutGil without;
        results = search(*of(self).model, *of(self).pool, settings, requests, [&] { return without.check_signals(); });
    }
    return list_of(results, result_list);
}

// ---- Step by step

constexpr const char* kSources = "clearhead.runtime.sources";
constexpr const char* kState = "clearhead.runtime.state";

using SourcesHandle = Handle<std::shared_ptr<const Sources>>;
using StateHandle = Handle<std::unique_ptr<DecoderState>>;

// The state of a capsule, for one thread at a time.
class BorrowedState {
  public:
    BorrowedState(PyObject* self, PyObject* capsule) : handle_(from_capsule<StateHandle>(capsule, kState, self)) {
        require(!handle_.is_busy.exchange(true), "the state is in use by another thread");
    }
    ~BorrowedState() { handle_.is_busy = false; }
    DecoderState& operator*() { return *handle_.value; }
    DecoderState* operator->() { return handle_.value.get(); }

  private:
    StateHandle& handle_;
};

PyObject* model_encode(PyObject* self, Sequences sources) {
    auto handle = std::make_unique<SourcesHandle>(self);
    {
        WithoutGil without;
        BorrowedWorker worker(*of(self).pool);
        handle->value = encode_sources(*of(self).model, *worker, sources.ids.data(), sources.lengths);
    }
    return to_capsule(std::move(handle), kSources);
}

PyObject* model_start(PyObject* self, PyObject* sources, int sentences, int width) {
    const Model& model = *of(self).model;
    const bool has_encoder = model.settings.architecture == Architecture::encoder_decoder;
    require(has_encoder == (sources != Py_None), "expected sources if and only if the model has an encoder");
    auto handle = std::make_unique<StateHandle>(self);
    std::shared_ptr<const Sources> encoded;
    if (has_encoder) encoded = from_capsule<SourcesHandle>(sources, kSources, self).value;
    handle->value = start_state(model, encoded, sentences, width);
    return to_capsule(std::move(handle), kState);
}

void model_step(PyObject* self, PyObject* capsule, Array<const int32_t> tokens, int count, int all_positions,
                Array<float> log_probs, int layer, Array<float> attention) {
    BorrowedState state(self, capsule);
    const Model& model = *of(self).model;
    const size_t rows = state->rows();
    require(count >= 1 && tokens.size() == rows * count,
            "expected the same number of tokens, at least one, for each row");
    const size_t blocks = all_positions ? rows * count : rows;
    require(log_probs.size() == blocks * state->num_outputs, "log_probs does not have the expected size");
    if (attention) {
        require(state->sources != nullptr, "this model has no cross-attention");
        size_t size = 0;
        for (int sentence : state->sentences) size += state->sources->sources[sentence].length;
        require(attention.size() == size * count * model.settings.heads, "attention does not have the expected size");
    }
    WithoutGil without;
    BorrowedWorker worker(*of(self).pool);
    step_state(model, *worker, *state, tokens.data(), count, all_positions, log_probs.data(), layer, attention.data());
}

void model_reorder(PyObject* self, PyObject* capsule, Array<const int32_t> rows) {
    BorrowedState state(self, capsule);
    reorder_state(*state, rows.data(), rows.size());
}

void model_restrict(PyObject* self, PyObject* capsule, Sequences allowed) {
    BorrowedState state(self, capsule);
    restrict_state(*of(self).model, *state, allowed.ids.data(), allowed.lengths);
}

void model_score(PyObject* self, Sequences sources, Sequences targets, int start_id, Array<float> log_probs, int layer,
                 Array<float> attention, int threads) {
    const Model& model = *of(self).model;
    require(log_probs.size() == targets.ids.size(), "log_probs does not have the expected size");
    require(sources.lengths.size() == targets.lengths.size(), "expected a target for each source");
    if (attention) {
        size_t size = 0;
        for (size_t i = 0; i < sources.lengths.size(); i++) size += (size_t)sources.lengths[i] * targets.lengths[i];
        require(attention.size() == size * model.settings.heads, "attention does not have the expected size");
    }
    Computation run(self, threads);
    score_targets(model, run.execution, sources.ids.data(), sources.lengths, targets.ids.data(), targets.lengths,
                  start_id, log_probs.data(), layer, attention.data());
}

// ---- Encoders

void model_encode_texts(PyObject* self, Sequences texts, int kind, Array<float> out, int threads) {
    const Model& model = *of(self).model;
    require(kind >= 0 && kind <= (int)EncoderOutput::tags, "unknown output");
    require(out.size() == encoder_output_size(model, (EncoderOutput)kind, texts.lengths),
            "the output does not have the expected size");
    Computation run(self, threads);
    encode_texts(model, run.execution, texts.ids.data(), texts.lengths, (EncoderOutput)kind, out.data());
}

void model_predict_masked(PyObject* self, Sequences texts, Array<const int32_t> rows, Array<float> out, int threads) {
    const Model& model = *of(self).model;
    require(out.size() == rows.size() * model.settings.vocabulary, "the output does not have the expected size");
    const std::vector<int> positions(rows.data(), rows.data() + rows.size());
    Computation run(self, threads);
    predict_masked(model, run.execution, texts.ids.data(), texts.lengths, positions, out.data());
}

PyMethodDef model_methods[] = {
    {"search", Method<model_search>::call, METH_VARARGS, nullptr},
    {"encode", Method<model_encode>::call, METH_VARARGS, nullptr},
    {"start", Method<model_start>::call, METH_VARARGS, nullptr},
    {"step", Method<model_step>::call, METH_VARARGS, nullptr},
    {"reorder", Method<model_reorder>::call, METH_VARARGS, nullptr},
    {"restrict", Method<model_restrict>::call, METH_VARARGS, nullptr},
    {"score", Method<model_score>::call, METH_VARARGS, nullptr},
    {"encode_texts", Method<model_encode_texts>::call, METH_VARARGS, nullptr},
    {"predict_masked", Method<model_predict_masked>::call, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot model_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(model_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(model_dealloc)},
    {Py_tp_methods, model_methods},
    {Py_tp_doc, const_cast<char*>("A Transformer with prepared weights; see clearhead/runtime/native_model.py.")},
    {0, nullptr},
};

PyType_Spec model_spec = {"clearhead.runtime._core.Model", sizeof(ModelObject), 0, Py_TPFLAGS_DEFAULT, model_slots};

// ---- The module

// Return {name: supported by this CPU} of all compiled instruction sets, the fastest first.
PyObject* list_instruction_sets(PyObject*) {
    Reference result(PyDict_New());
    for (const InstructionSet& isa : instruction_sets())
        if (PyDict_SetItemString(result.get(), isa.kernels->name, isa.is_supported ? Py_True : Py_False) < 0)
            throw PythonError();
    return result.release();
}

// Return the name of the instruction set in use; the argument forces one unless it is empty.
PyObject* select_instruction_set(PyObject*, const char* forced) {
    return PyUnicode_FromString(select_kernels(forced).name);
}

PyObject* count_allocated_bytes(PyObject*) { return PyLong_FromSize_t(allocated_bytes()); }

PyMethodDef methods[] = {
    {"instruction_sets", Method<list_instruction_sets>::call, METH_VARARGS,
     "Return {name: supported by this CPU}, fastest first."},
    {"select_instruction_set", Method<select_instruction_set>::call, METH_VARARGS,
     "Return the name of the fastest supported instruction set, or of the forced one. Raise ValueError."},
    {"allocated_bytes", Method<count_allocated_bytes>::call, METH_VARARGS,
     "Return the bytes that weights, caches and buffers hold."},
    {nullptr, nullptr, 0, nullptr},
};

int add_types(PyObject* module) {
    PyObject* type = PyType_FromSpec(&model_spec);
    if (!type) return -1;
    const int result = PyModule_AddObjectRef(module, "Model", type);
    Py_DECREF(type);
    return result;
}

PyModuleDef_Slot module_slots[] = {{Py_mod_exec, reinterpret_cast<void*>(add_types)}, {0, nullptr}};

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    "clearhead.runtime._core",
    "C++ core of the inference runtime.",
    0,
    methods,
    module_slots,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__core() { return PyModuleDef_Init(&module_definition); }
