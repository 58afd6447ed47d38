// Python binding: module clearhead.runtime._core, limited C API of Python 3.11 (one binary for all later versions).
#include <Python.h>

#include <exception>
#include <stdexcept>

#include "dispatch.h"

namespace {

// Return {name: supported by this CPU} of all compiled instruction sets, the fastest first.
PyObject* list_instruction_sets(PyObject*, PyObject*) {
    PyObject* result = PyDict_New();
    if (result == nullptr) return nullptr;
    for (const clearhead::InstructionSet& isa : clearhead::instruction_sets()) {
        if (PyDict_SetItemString(result, isa.name, isa.supported ? Py_True : Py_False) < 0) {
            Py_DECREF(result);
            return nullptr;
        }
    }
    return result;
}

// Return the name of the instruction set in use; the argument forces one unless it is empty.
PyObject* select_instruction_set(PyObject*, PyObject* args) {
    const char* forced = nullptr;
    if (!PyArg_ParseTuple(args, "s", &forced)) return nullptr;
    try {
        return PyUnicode_FromString(clearhead::select_instruction_set(forced).name);
    } catch (const std::invalid_argument& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
}

PyMethodDef methods[] = {
    {"instruction_sets", list_instruction_sets, METH_NOARGS, "Return {name: supported by this CPU}, fastest first."},
    {"select_instruction_set", select_instruction_set, METH_VARARGS,
     "Return the name of the fastest supported instruction set, or of the forced one. Raise ValueError."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    "clearhead.runtime._core",
    "C++ core of the inference runtime.",
    0,
    methods,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__core() { return PyModuleDef_Init(&module_definition); }
