// module.c: the extension module tenon._c.
#include "core.h"

PyObject *core_module;

static int add_all(PyObject *m)
{
    PyObject *all = PyList_New(0);
    for (int i = 0; all && exported_names[i]; i++) {
        PyObject *name = PyUnicode_FromString(exported_names[i]);
        if (!name || PyList_Append(all, name) < 0) Py_CLEAR(all);
        Py_XDECREF(name);
    }
    int failed = all ? PyModule_AddObjectRef(m, "__all__", all) : -1;
    Py_XDECREF(all);
    return failed;
}

PyMODINIT_FUNC PyInit__c(void)
{
    static struct PyModuleDef def = { PyModuleDef_HEAD_INIT, .m_name = "tenon._c", .m_size = -1 };
    PyObject                 *m   = PyModule_Create(&def);
    if (!m) return NULL;
    core_module = m;
    if (site_ready(m) < 0 || context_ready(m) < 0 || handles_ready(m) < 0 || tensor_ready(m) < 0 ||
        PyModule_AddFunctions(m, generated_methods) < 0 || exchange_ready(m) < 0 ||
        dlpack_ready(m) < 0 || layers_ready(m) < 0 || custom_ready(m) < 0 ||
        functions_ready(m) < 0 || data_ready(m) < 0 || inspect_ready(m) < 0 || onnx_ready(m) < 0 ||
        add_all(m) < 0 || PyModule_AddStringConstant(m, "version", tn_version()) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
