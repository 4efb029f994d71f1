/* View: a gw_view with what keeps its memory alive: an array that was borrowed through DLPack, or memory of the
 * library, which goes out that way (export.h). */
#ifndef GANGWAY_PYTHON_VIEW_H
#define GANGWAY_PYTHON_VIEW_H

#include "dlpack.h"

enum { kViewDims = 8 };
/* CUDA's legacy default stream, by DLPack's number and as a cudaStream_t; PyTorch's own default stream. */
enum { kLegacyStream = 1 };

typedef struct View {
  PyObject_HEAD gw_view view;
  int64_t shape[kViewDims], strides[kViewDims];
  struct DLManagedTensorVersioned* managed; /* of the array that was borrowed */
  OldManaged* old;
  PyObject* owner; /* keeps memory of the library alive */
  Py_ssize_t exports;
  char read_only;
} View;

static PyTypeObject* view_type;

static void* address_of(const View* view) {
  return view->view.data == NULL ? NULL : (char*)view->view.data + view->view.byte_offset;
}

static int64_t count_of(const gw_view* view) {
  int64_t count = 1;
  for (int i = 0; i < view->ndim; ++i) count *= view->shape[i];
  return count;
}

static int contiguous(const View* view) {
  int64_t step = 1;
  if (count_of(&view->view) == 0) return 1;
  for (int i = view->view.ndim - 1; i >= 0; --i) {
    if (view->shape[i] != 1 && view->strides[i] != step) return 0;
    step *= view->shape[i];
  }
  return 1;
}

/* A view with its own copy of shape and strides; 0 dims too many. */
static View* view_new(const gw_view* from, PyObject* owner) {
  if (from->ndim < 0 || from->ndim > kViewDims) {
    refuse("the array has %d dims, at most %d are possible", (int)from->ndim, (int)kViewDims);
    return NULL;
  }
  View* made = PyObject_New(View, view_type);
  if (made == NULL) return NULL;
  memset((char*)made + sizeof(PyObject), 0, sizeof *made - sizeof(PyObject));
  made->view = *from;
  int64_t step = 1;
  for (int i = from->ndim - 1; i >= 0; --i) {
    made->shape[i] = from->shape[i];
    made->strides[i] = from->strides != NULL ? from->strides[i] : step;
    step *= from->shape[i];
  }
  made->view.shape = made->shape;
  made->view.strides = made->strides;
  made->owner = Py_XNewRef(owner);
  return made;
}

static PyObject* gwpy_view_of(const gw_view* from, PyObject* owner) {
  return (PyObject*)view_new(from, owner);
}

/* None for one that has elements and no memory. */
static PyObject* gwpy_views_of(const gw_view* from, size_t count, PyObject* owner, int read_only) {
  PyObject* all = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; all != NULL && i < count; ++i) {
    const int absent = from[i].data == NULL && (from[i].shape == NULL || count_of(&from[i]) > 0);
    PyObject* item = absent ? Py_NewRef(Py_None) : gwpy_view_of(&from[i], owner);
    if (item == NULL) return Py_DECREF(all), NULL;
    if (!absent) ((View*)item)->read_only = (char)read_only;
    PyList_SetItem(all, (Py_ssize_t)i, item);
  }
  return all;
}

static void view_free(PyObject* object) {
  View* view = (View*)object;
  if (view->managed != NULL && view->managed->deleter != NULL) view->managed->deleter(view->managed);
  if (view->old != NULL && view->old->deleter != NULL) view->old->deleter(view->old);
  Py_CLEAR(view->owner);
  free_object(object);
}

#include "export.h"

/* --- in
 * -------------------------------------------------------------------------------------------------------------
 */

enum { kWantsWritable = 1, kWantsContiguous = 2 };

static View* take_capsule(PyObject* capsule, const char* name) {
  View* view = NULL;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    struct DLManagedTensorVersioned* managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->version.major != 1)
      return refuse("%s gives DLPack %d, not 1", name, (int)managed->version.major), NULL;
    if ((view = view_new(&managed->tensor, NULL)) == NULL) return NULL;
    view->managed = managed;
    view->read_only = (managed->flags & kReadOnlyFlag) != 0;
    PyCapsule_SetName(capsule, "used_dltensor_versioned");
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    OldManaged* managed = PyCapsule_GetPointer(capsule, "dltensor");
    if ((view = view_new(&managed->tensor, NULL)) == NULL) return NULL;
    view->old = managed;
    PyCapsule_SetName(capsule, "used_dltensor");
  } else {
    refuse("%s: __dlpack__ gave a %s, not a DLPack capsule", name, TYPE_NAME(capsule));
  }
  return view;
}

/* Whether the array says that it lies on a CUDA GPU; old exporters say nothing. -1: an exception. */
static int says_gpu(PyObject* array) {
  static PyObject* name;
  if (name == NULL) name = PyUnicode_InternFromString("__dlpack_device__");
  PyObject* method = PyObject_GetAttr(array, name);
  if (method == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  PyObject* device = PyObject_CallNoArgs(method);
  int kind = 0, id = 0;
  const int known =
      device != NULL && pair_of(device, "ii;__dlpack_device__ gives no (device type, device id)", &kind, &id);
  Py_XDECREF(device);
  Py_DECREF(method);
  return known ? kind == GW_DEVICE_CUDA : -1;
}

/* Asks for version 1.0; exporters that do not know the keyword give the old capsule. Exporters of a GPU's memory are told
 * the stream that calls on it are ordered on: they make it wait for their own. */
static PyObject* ask_capsule(PyObject* array) {
  static PyObject *name, *none, *version[2], *old[2];
  if (name == NULL) {
    name = PyUnicode_InternFromString("__dlpack__");
    none = PyTuple_New(0);
    version[0] = Py_BuildValue("{s(ii)}", "max_version", 1, 0);
    version[1] = Py_BuildValue("{si,s(ii)}", "stream", kLegacyStream, "max_version", 1, 0);
    old[1] = Py_BuildValue("{si}", "stream", kLegacyStream);
  }
  PyObject* method = PyObject_GetAttr(array, name);
  if (method == NULL) return NULL;
  const int gpu = says_gpu(array);
  PyObject* capsule = gpu < 0 ? NULL : PyObject_Call(method, none, version[gpu]);
  if (gpu >= 0 && capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    capsule = PyObject_Call(method, none, old[gpu]);
  }
  Py_DECREF(method);
  return capsule;
}

/* An exporter's own refusal, as ours. */
static void refuse_because(const char* name) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (PyErr_GivenExceptionMatches(type, PyExc_Exception)) {
    PyErr_NormalizeException(&type, &value, &trace);
    refuse("%s cannot be borrowed: %S", name, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
  } else {
    PyErr_Restore(type, value, trace);
  }
}

static int fits(const View* view, const char* name, int wants) {
  if (view->view.device_type != GW_DEVICE_CPU && view->view.device_type != GW_DEVICE_CUDA)
    refuse("%s is on device %d:%d (DLPack's numbers): Python passes arrays on the CPU and on CUDA GPUs alone",
           name, (int)view->view.device_type, (int)view->view.device_id);
  else if (gw_dtype_bytes(view->view.dtype) == 0)
    refuse("%s has element type 0x%x (DLPack's code, bits and lanes), which cannot be moved", name,
           (int)view->view.dtype);
  else if ((wants & kWantsWritable) && view->read_only)
    refuse("%s is read-only, but it is to be written", name);
  else if ((wants & kWantsContiguous) && !contiguous(view)) {
    PyObject *shape = gwpy_tuple(view->shape, view->view.ndim),
             *strides = gwpy_tuple(view->strides, view->view.ndim);
    refuse("%s is not contiguous: shape %R has strides %R, row-major is needed", name, shape, strides);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
  } else
    return 1;
  return 0;
}

/* make_view(address, shape, dtype, owner[, device]) -> View of the library's memory, row-major */
static PyObject* gwpy_make_view(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *address, *dims, *owner;
  int dtype, kind = GW_DEVICE_CPU, id = 0;
  int64_t shape[kViewDims];
  if (!PyArg_ParseTuple(args, "OOiO|(ii)", &address, &dims, &dtype, &owner, &kind, &id)) return NULL;
  const Py_ssize_t ndim = PySequence_Size(dims);
  if (ndim < 0 || !gwpy_numbers(dims, "shape", shape, kViewDims)) return NULL;
  gw_view view = {PyLong_AsVoidPtr(address), kind, id, (int32_t)ndim, dtype, shape, NULL, 0};
  return PyErr_Occurred() ? NULL : gwpy_view_of(&view, owner);
}

/* Lets go while a refusal is on its way: deleters and destructors may run Python code. */
static void drop_beside_error(PyObject* object) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  Py_DECREF(object);
  PyErr_Restore(type, value, trace);
}

/* borrow(array, name, wants[, dtype]) -> View. `dtype`: that of the elements, where the exporter gives out integers of the
 * same size because DLPack does not know his own type. */
static PyObject* gwpy_borrow(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* array;
  const char* name;
  int wants, dtype = GW_DTYPE_NONE;
  if (!PyArg_ParseTuple(args, "Osi|i", &array, &name, &wants, &dtype)) return NULL;
  View* view = NULL;
  if (Py_TYPE(array) == view_type) {
    view = (View*)Py_NewRef(array);
  } else {
    PyObject* capsule = ask_capsule(array);
    if (capsule == NULL) {
      if (PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Format(PyExc_TypeError, "%s is a %s, not an array (it has no __dlpack__)", name,
                     TYPE_NAME(array));
      else
        refuse_because(name);
      return NULL;
    }
    view = take_capsule(capsule, name);
    drop_beside_error(capsule);
    if (view != NULL && dtype != GW_DTYPE_NONE) view->view.dtype = dtype;
  }
  if (view == NULL || fits(view, name, wants)) return (PyObject*)view;
  drop_beside_error((PyObject*)view);
  return NULL;
}

#endif
