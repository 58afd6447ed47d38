// Helpers of the Python binding: errors, references, arrays and numbers that come from Python, handles that go there.
//
// Arrays come in and go out through the buffer protocol: Python allocates, the core reads and writes.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel.h"

namespace clearhead {

struct PythonError {};  // a Python exception is set

inline void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

// Calls `work`, which returns an object or nothing (None), and translates its exceptions; null on error.
template <typename Work>
PyObject* guarded(Work work) {
    try {
        if constexpr (std::is_void_v<decltype(work())>) {
            work();
            return Py_NewRef(Py_None);
        } else {
            return work();
        }
    } catch (const PythonError&) {
    } catch (const Interrupted&) {
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::invalid_argument& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

// Owned reference to a new Python object. The constructor throws PythonError if creating the object failed.
class Reference {
  public:
    explicit Reference(PyObject* object) : object_(object) {
        if (!object) throw PythonError();
    }
    ~Reference() { Py_XDECREF(object_); }
    Reference(const Reference&) = delete;
    Reference& operator=(const Reference&) = delete;
    PyObject* get() const { return object_; }
    PyObject* release() { return std::exchange(object_, nullptr); }

  private:
    PyObject* object_;
};

// Takes the interpreter lock. While the interpreter ends, Python before 3.14 ends a daemon thread here by unwinding its
// stack, which aborts the process where a handler or a destructor stops it. Python 3.14 blocks the thread until the
// process has ended; so does this function in every version.
inline void restore_thread(PyThreadState* state) {
    try {
        PyEval_RestoreThread(state);
    } catch (...) {
        while (true) pause();
    }
}

// Releases the interpreter lock while this object exists, so that other Python threads can run.
class WithoutGil {
  public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    ~WithoutGil() { restore_thread(state_); }
    // Returns whether a signal handler raised an exception, such as KeyboardInterrupt.
    bool check_signals() {
        restore_thread(state_);
        const bool is_raised = PyErr_CheckSignals() < 0;
        state_ = PyEval_SaveThread();
        return is_raised;
    }

  private:
    PyThreadState* state_;
};

// A C-contiguous Python array of one element type (const: read-only), or no array if the argument is None.
template <typename T>
class Array {
  public:
    explicit Array(PyObject* object) {
        if (object == Py_None) return;
        const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (std::is_const_v<T> ? 0 : PyBUF_WRITABLE);
        if (PyObject_GetBuffer(object, &view_, flags) < 0) throw PythonError();
        has_view_ = true;
        const bool fits = view_.itemsize == sizeof(T) && view_.format && is_format(view_.format);
        if (!fits) {
            PyBuffer_Release(&view_);
            throw std::invalid_argument("an array does not have the expected element type");
        }
    }
    ~Array() {
        if (has_view_) PyBuffer_Release(&view_);
    }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    explicit operator bool() const { return has_view_; }
    T* data() const { return static_cast<T*>(view_.buf); }
    size_t size() const { return has_view_ ? (size_t)view_.len / sizeof(T) : 0; }
    std::vector<size_t> shape() const { return {view_.shape, view_.shape + view_.ndim}; }

  private:
    static bool is_format(const char* format) {
        const char* code = *format == '<' || *format == '=' || *format == '@' ? format + 1 : format;
        if (code[0] == '\0' || code[1] != '\0') return false;
        using Element = std::remove_const_t<T>;
        if (std::is_same_v<Element, float>) return *code == 'f';
        if (std::is_same_v<Element, double>) return *code == 'd';
        if (std::is_same_v<Element, uint8_t>) return *code == 'B' || *code == '?';
        return *code == 'i' || (sizeof(long) == sizeof(T) && *code == 'l');
    }
    Py_buffer view_{};
    bool has_view_ = false;
};

// A pair of arrays: the concatenated ids of sequences, and the length of each. None: no sequences.
struct Sequences {
    Array<const int32_t> ids;
    std::vector<int> lengths;

    explicit Sequences(PyObject* pair) : ids(member(pair, 0)) {
        if (!ids) return;
        const Array<const int32_t> given(member(pair, 1));
        lengths.assign(given.data(), given.data() + given.size());
        size_t sum = 0;
        for (int length : lengths) {
            require(length >= 0, "a length is negative");
            sum += length;
        }
        require(sum == ids.size(), "the lengths do not add up to the number of ids");
    }
    explicit operator bool() const { return static_cast<bool>(ids); }

  private:
    static PyObject* member(PyObject* pair, Py_ssize_t i) {
        if (pair == Py_None) return pair;
        require(PyTuple_Check(pair) && PyTuple_Size(pair) == 2, "sequences are a pair of ids and lengths");
        return PyTuple_GetItem(pair, i);
    }
};

// Converts an argument of a method to the type of the parameter.
template <typename T>
T argument(PyObject* object) {
    if constexpr (std::is_same_v<T, PyObject*>) {
        return object;
    } else if constexpr (std::is_same_v<T, int>) {
        const long number = PyLong_AsLong(object);
        if (number == -1 && PyErr_Occurred()) throw PythonError();
        require(number >= INT_MIN && number <= INT_MAX, "a number is out of range");
        return (int)number;
    } else if constexpr (std::is_same_v<T, const char*>) {
        const char* text = PyUnicode_AsUTF8AndSize(object, nullptr);
        if (!text) throw PythonError();
        return text;
    } else {
        return T(object);
    }
}

// Method<function>::call is function(self, arguments ...) as Python calls it: arguments are converted to the types of
// its parameters, and exceptions to Python's.
template <auto function>
struct Method;

template <typename Result, typename... Parameters, Result (*function)(PyObject*, Parameters...)>
struct Method<function> {
    static PyObject* call(PyObject* self, PyObject* arguments) {
        return spread(self, arguments, std::index_sequence_for<Parameters...>());
    }

  private:
    template <size_t... i>
    static PyObject* spread(PyObject* self, PyObject* arguments, std::index_sequence<i...>) {
        return guarded([&] {
            require(PyTuple_Size(arguments) == (Py_ssize_t)sizeof...(i), "wrong number of arguments");
            return function(self, argument<Parameters>(PyTuple_GetItem(arguments, i))...);
        });
    }
};

// These functions read a number of a dict: any number, a finite float, and an integer from `least` to `most`.
inline double number(PyObject* settings, const char* name) {
    PyObject* value = PyDict_GetItemString(settings, name);  // borrowed
    if (!value) throw std::invalid_argument(std::string("the setting ") + name + " is missing");
    const double result = PyFloat_AsDouble(value);
    if (result == -1 && PyErr_Occurred()) throw PythonError();
    return result;
}

inline float get_float(PyObject* settings, const char* name) {
    const double value = number(settings, name);
    if (!(std::fabs(value) <= std::numeric_limits<float>::max()))
        throw std::invalid_argument(std::string("the setting ") + name + " is not a finite float32");
    return (float)value;
}

inline int get_integer(PyObject* settings, const char* name, int least = INT_MIN, int most = INT_MAX) {
    const double value = number(settings, name);
    if (!(value >= least && value <= most && value == (double)(int)value))
        throw std::invalid_argument(std::string("the setting ") + name + " is out of range");
    return (int)value;
}

// A new list of convert(value) for each value.
template <typename T, typename Convert>
PyObject* list_of(const std::vector<T>& values, Convert convert) {
    Reference list(PyList_New((Py_ssize_t)values.size()));
    for (size_t i = 0; i < values.size(); i++)
        PyList_SetItem(list.get(), (Py_ssize_t)i, Reference(convert(values[i])).release());
    return list.release();
}

// A value that belongs to a model, with a reference that keeps the model alive, so that no other model gets its
// address. Python stores it in a capsule.
template <typename T>
struct Handle {
    explicit Handle(PyObject* model) : model(Py_NewRef(model)) {}
    Reference model;
    T value{};
    std::atomic<bool> is_busy{false};
};

template <typename T>
PyObject* to_capsule(std::unique_ptr<Handle<T>> handle, const char* name) {
    const auto free = [](PyObject* capsule) {
        delete static_cast<Handle<T>*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
    };
    PyObject* capsule = PyCapsule_New(handle.get(), name, free);
    if (capsule) handle.release();
    return capsule;
}

template <typename T>
T& from_capsule(PyObject* capsule, const char* name, PyObject* model) {
    void* pointer = PyCapsule_GetPointer(capsule, name);
    if (!pointer) throw PythonError();
    T& handle = *static_cast<T*>(pointer);
    require(handle.model.get() == model, "expected a state or sources of this model, found those of another model");
    return handle;
}

}  // namespace clearhead
