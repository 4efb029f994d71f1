/* What the typemaps call: errors, handles, pointers. */
#ifndef GANGWAY_PYTHON_SUPPORT_H
#define GANGWAY_PYTHON_SUPPORT_H

/* --- errors: statuses to exceptions
 * -------------------------------------------------------------------------------- */

static PyObject* error_factory; /* (code, message, gang, rank, peer, op, system_error, path) -> exception */
/* The exception of this thread's callback, kept while it travels through the library as GW_E_CALLER. */
static _Thread_local PyObject *kept_type, *kept_value, *kept_trace;

static PyObject* gwpy_set_error_factory(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* factory;
  if (!PyArg_ParseTuple(args, "O", &factory)) return NULL;
  Py_XDECREF(error_factory);
  error_factory = Py_NewRef(factory);
  Py_RETURN_NONE;
}

/* Whether what is kept came from a signal: then it is raised even when the call has succeeded, like after any
 * other function. What callbacks raised is the library's to overcome. */
static _Thread_local int kept_signal;
/* Whether it is of a callback that answers without a status: then any failure of the call brings it. */
static _Thread_local int kept_answer;

static void drop_kept(void) {
  kept_signal = kept_answer = 0;
  Py_CLEAR(kept_type);
  Py_CLEAR(kept_value);
  Py_CLEAR(kept_trace);
}

/* Keeps the current exception for the call that is in progress on this thread; what a callback returns then.
 */
static gw_status keep_error(void) {
  if (kept_signal) {
    PyErr_Clear(); /* Ctrl-C comes before what it made fail */
    return GW_E_CALLER;
  }
  drop_kept();
  PyErr_Fetch(&kept_type, &kept_value, &kept_trace);
  kept_signal = PyErr_GivenExceptionMatches(kept_type, PyExc_KeyboardInterrupt);
  return GW_E_CALLER;
}

static void raise_kept(void) {
  PyErr_Restore(kept_type, kept_value, kept_trace);
  kept_type = kept_value = kept_trace = NULL;
  kept_signal = kept_answer = 0;
}

/* A text of C as a str. A program in C may have named a gang in bytes that are no UTF-8. */
static PyObject* gwpy_str(const char* text) {
  if (text == NULL) Py_RETURN_NONE;
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* A path of C as a str, as os.fsdecode gives it: it may have bytes that are no UTF-8. */
static PyObject* gwpy_path_str(const char* path) { return PyUnicode_DecodeFSDefault(path); }

/* Takes over `message`. */
static void raise_str(gw_status code, PyObject* message, const gw_error_info* info) {
  PyObject* made = PyObject_CallFunction(
      error_factory, "iNNiiNiN", (int)code, message, gwpy_str(info ? info->gang : ""),
      info ? (int)info->rank : -1, info ? (int)info->peer : -1, gwpy_str(info ? info->op : ""),
      info ? (int)info->system_error : 0, gwpy_path_str(info ? info->path : ""));
  if (made == NULL) return;
  PyErr_SetObject((PyObject*)Py_TYPE(made), made);
  Py_DECREF(made);
}

static void raise_code(gw_status code, const char* message, const gw_error_info* info) {
  raise_str(code, gwpy_str(message), info);
}

/* Refuses an argument like the library does; the text names it. */
static void refuse(const char* format, ...) {
  va_list list;
  va_start(list, format);
  PyObject* text = PyUnicode_FromFormatV(format, list);
  va_end(list);
  if (text != NULL) raise_str(GW_E_INVALID_ARGUMENT, text, NULL); /* it may have no UTF-8 */
}

static int gwpy_check(gw_status status) {
  if (status == GW_OK) {
    if (kept_type != NULL && !kept_signal) drop_kept();
    return 1;
  }
  if (kept_signal || kept_answer || (status == GW_E_CALLER && kept_type != NULL)) {
    raise_kept();
    return 0;
  }
  gw_error_info info;
  gw_error_info_init(&info, sizeof info);
  gw_last_error(&info);
  drop_kept();
  raise_code(status, info.message, &info);
  return 0;
}

/* After a call that succeeded, once its results are owned: gives them up for a kept signal. */
static PyObject* gwpy_result(PyObject* result) {
  if (result == NULL || !kept_signal) return result;
  Py_DECREF(result);
  raise_kept();
  return NULL;
}

/* --- types, which Python's limited API does not show
 * ------------------------------------------------------------------------------------------------------- */

typedef struct {
  char text[100];
} TypeName;

/* "ndarray". For an error's text: the exception that is on its way is dropped. */
static TypeName name_of_type(PyObject* type) {
  TypeName name = {"thing"};
  PyErr_Clear();
  PyObject* found = PyObject_GetAttrString(type, "__name__");
  const char* text = found != NULL ? PyUnicode_AsUTF8AndSize(found, NULL) : NULL;
  if (text != NULL) snprintf(name.text, sizeof name.text, "%s", text);
  PyErr_Clear();
  Py_XDECREF(found);
  return name;
}
#define TYPE_NAME(object) name_of_type((PyObject*)Py_TYPE(object)).text

/* Of an object that PyObject_New made. */
static void free_object(PyObject* object) {
  PyObject* type = (PyObject*)Py_TYPE(object);
  PyObject_Free(object);
  Py_DECREF(type);
}

/* --- numbers: refused in the words of the package, by the name of the argument or field
 * ------------------------------------- */

/* `given` as an int of Python; null with an exception when it is no integer. */
static PyObject* whole_number(PyObject* given, const char* name) {
  PyObject* number = PyNumber_Index(given);
  if (number == NULL && PyErr_ExceptionMatches(PyExc_TypeError))
    PyErr_Format(PyExc_TypeError, "%s is a %s, not an integer", name, TYPE_NAME(given));
  return number;
}

static int gwpy_integer(PyObject* given, const char* name, long long lowest, long long highest,
                        long long* out) {
  PyObject* number = whole_number(given, name);
  if (number == NULL) return 0;
  int overflow = 0;
  *out = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow != 0 || *out < lowest || *out > highest)
    refuse("%s is %S, outside of [%lld, %lld]", name, number, lowest, highest);
  Py_DECREF(number);
  return !PyErr_Occurred();
}

static int gwpy_unsigned(PyObject* given, const char* name, uint64_t* out) {
  PyObject* number = whole_number(given, name);
  if (number == NULL) return 0;
  *out = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
    PyErr_Clear();
    refuse("%s is %S, outside of [0, %llu]", name, number, (unsigned long long)UINT64_MAX);
  }
  Py_DECREF(number);
  return !PyErr_Occurred();
}

static int gwpy_double(PyObject* given, const char* name, double* out) {
  *out = PyFloat_AsDouble(given);
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError))
    PyErr_Format(PyExc_TypeError, "%s is a %s, not a number", name, TYPE_NAME(given));
  return !PyErr_Occurred();
}

/* --- results
 * ------------------------------------------------------------------------------------------------------- */

/* None, then the first result itself, then a tuple. */
static PyObject* gwpy_append(PyObject* result, PyObject* next) {
  if (result == NULL || result == Py_None) {
    Py_XDECREF(result);
    return next;
  }
  if (next == NULL) {
    Py_DECREF(result);
    return NULL;
  }
  PyObject* left = PyTuple_Check(result) ? result : PyTuple_Pack(1, result);
  PyObject *right = PyTuple_Pack(1, next), *all = left && right ? PySequence_Concat(left, right) : NULL;
  if (left != result) Py_XDECREF(left);
  Py_XDECREF(right);
  Py_DECREF(result);
  Py_DECREF(next);
  return all;
}

static PyObject* gwpy_tuple(const int64_t* values, Py_ssize_t count) {
  PyObject* all = PyTuple_New(count);
  for (Py_ssize_t i = 0; all != NULL && i < count; ++i)
    PyTuple_SetItem(all, i, PyLong_FromLongLong(values[i]));
  return all;
}

static int gwpy_numbers(PyObject* given, const char* name, int64_t* values, Py_ssize_t capacity) {
  PyObject* all = PySequence_Tuple(given);
  if (all == NULL) {
    if (PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_Format(PyExc_TypeError, "%s is a %s, not a sequence of integers", name, TYPE_NAME(given));
    return 0;
  }
  const Py_ssize_t count = PyTuple_Size(all);
  if (count > capacity) refuse("%s has %zd numbers, at most %zd are possible", name, count, capacity);
  memset(values, 0, (size_t)capacity * sizeof *values);
  for (Py_ssize_t i = 0; !PyErr_Occurred() && i < count; ++i) {
    long long number = 0;
    gwpy_integer(PyTuple_GetItem(all, i), name, INT64_MIN, INT64_MAX, &number);
    values[i] = number;
  }
  Py_DECREF(all);
  return !PyErr_Occurred();
}

/* --- handles: capsules that release themselves
 * ---------------------------------------------------------------------- */

/* Handles without a retain function have one owner; reading one back from a struct gives None. */
#define gwpy_no_retain(handle) NULL
static const char kReleased[] = "released";

static int gwpy_handle(PyObject* given, const char* kind, const char* name, void** out) {
  *out = NULL;
  if (given == Py_None) return 1;
  if (PyCapsule_IsValid(given, kind)) {
    *out = PyCapsule_GetPointer(given, kind);
    return 1;
  }
  if (PyCapsule_IsValid(given, kReleased))
    raise_code(GW_E_INVALID_STATE, "the object was released", NULL);
  else if (PyCapsule_CheckExact(given))
    PyErr_Format(PyExc_TypeError, "%s is a %s handle, not a %s handle", name, PyCapsule_GetName(given), kind);
  else
    PyErr_Format(PyExc_TypeError, "%s is a %s, not a %s handle", name, TYPE_NAME(given), kind);
  return 0;
}

static PyObject* gwpy_release(PyObject* handle, const char* kind, void (*drop)(void* pointer)) {
  if (handle == Py_None || PyCapsule_IsValid(handle, kReleased)) Py_RETURN_NONE;
  void* pointer;
  if (!gwpy_handle(handle, kind, "handle", &pointer)) return NULL;
  /* Before the lock is given up: from here on no other thread takes the handle. */
  PyCapsule_SetDestructor(handle, NULL);
  PyCapsule_SetName(handle, kReleased);
  drop(pointer);
  Py_RETURN_NONE;
}

/* --- blocks: arrays for parameters that take several, kept with what they point at
 * ----------------------------------- */

typedef struct Block {
  PyObject_HEAD void* data;
  PyObject* keep;
} Block;

static void block_free(PyObject* block) {
  free(((Block*)block)->data);
  Py_CLEAR(((Block*)block)->keep);
  free_object(block);
}

static PyType_Slot block_slots[] = {{Py_tp_dealloc, block_free}, {0, NULL}};
static PyType_Spec block_spec = {.name = "gangway._low.Block",
                                 .basicsize = sizeof(Block),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 .slots = block_slots};
static PyTypeObject* block_type;

#include "view.h"

static int gwpy_text(PyObject* given, const char* name, const char** out) {
  *out = NULL;
  if (given == Py_None) return 1;
  if (!PyUnicode_Check(given)) {
    PyErr_Format(PyExc_TypeError, "%s is a %s, not a str", name, TYPE_NAME(given));
    return 0;
  }
  Py_ssize_t size = 0;
  *out = PyUnicode_AsUTF8AndSize(given, &size); /* lives as long as the str */
  if (*out != NULL && strlen(*out) != (size_t)size) refuse("%s has a zero byte at %zu", name, strlen(*out));
  return !PyErr_Occurred();
}

/* A path: a str, or bytes as os.fsencode gives them. */
static int gwpy_path(PyObject* given, const char* name, const char** out) {
  if (!PyBytes_Check(given)) return gwpy_text(given, name, out);
  *out = PyBytes_AsString(given); /* lives as long as the bytes */
  if (*out != NULL && strlen(*out) != (size_t)PyBytes_Size(given))
    refuse("%s has a zero byte at %zu", name, strlen(*out));
  return !PyErr_Occurred();
}

/* The address behind None, a view, a block, bytes, a bytearray, a wrapped struct or an integer. Views as
 * `const gw_view *` give the view itself, elsewhere their elements. */
static int gwpy_address(PyObject* given, swig_type_info* type, const char* name, void** out) {
  *out = NULL;
  if (given == Py_None) return 1;
  if (Py_TYPE(given) == view_type) {
    View* view = (View*)given;
    *out = type == SWIGTYPE_p_gw_view ? (void*)&view->view : address_of(view);
  } else if (Py_TYPE(given) == block_type) {
    *out = ((Block*)given)->data;
  } else if (PyBytes_Check(given)) {
    *out = PyBytes_AsString(given);
  } else if (PyByteArray_Check(given)) {
    *out = PyByteArray_AsString(given);
  } else if (PyLong_Check(given)) {
    *out = PyLong_AsVoidPtr(given);
    return !PyErr_Occurred();
  } else if (!SWIG_IsOK(SWIG_ConvertPtr(given, out, type, 0))) {
    PyErr_Format(PyExc_TypeError, "%s is a %s, which has no address", name, TYPE_NAME(given));
    return 0;
  }
  return 1;
}

/* One element of a block at `place`; 0 with an exception when it does not fit. */
static int block_element(const char* kind, PyObject* item, char* place, size_t size) {
  void* pointer = NULL;
  switch (*kind) {
    case 'v':
      if (item == Py_None) return 1;
      if (Py_TYPE(item) != view_type) return PyErr_SetString(PyExc_TypeError, "a view is wanted"), 0;
      memcpy(place, &((View*)item)->view, size);
      return 1;
    case 's':
      if (!SWIG_IsOK(SWIG_ConvertPtr(item, &pointer, NULL, 0)) || pointer == NULL)
        return PyErr_SetString(PyExc_TypeError, "a struct is wanted"), 0;
      memcpy(place, pointer, size);
      return 1;
    case 'g':
      if (!gwpy_handle(item, kind, "an element", &pointer)) return 0;
      memcpy(place, &pointer, sizeof pointer);
      return 1;
    case 't':
      if (!gwpy_text(item, "text", (const char**)&pointer)) return 0;
      memcpy(place, &pointer, sizeof pointer);
      return 1;
    case 'a':
      if (!gwpy_address(item, SWIGTYPE_p_void, "address", &pointer)) return 0;
      memcpy(place, &pointer, sizeof pointer);
      return 1;
    default: {
      const int is_short = *kind == 'i';
      long long number;
      if (!gwpy_integer(item, "an element", is_short ? INT32_MIN : INT64_MIN,
                        is_short ? INT32_MAX : INT64_MAX, &number))
        return 0;
      if (is_short)
        *(int32_t*)place = (int32_t)number;
      else
        *(int64_t*)place = number;
      return 1;
    }
  }
}

static size_t element_size(char kind, PyObject* first) {
  void* pointer = NULL;
  if (kind == 'v') return sizeof(gw_view);
  if (kind == 's' && SWIG_IsOK(SWIG_ConvertPtr(first, &pointer, NULL, 0)) && pointer)
    return *(size_t*)pointer;
  return kind == 'i' ? sizeof(int32_t) : sizeof(int64_t);
}

/* block(kind, sequence): v views, s structs, gw_... handles of this kind, t texts, a addresses, i int32, l
 * int64; None when empty. */
static PyObject* gwpy_block(PyObject* module, PyObject* args) {
  (void)module;
  const char* kind;
  PyObject* given;
  if (!PyArg_ParseTuple(args, "sO", &kind, &given)) return NULL;
  PyObject* items = PySequence_Tuple(given);
  if (items == NULL) return NULL;
  const Py_ssize_t count = PyTuple_Size(items);
  if (count == 0) return Py_DECREF(items), Py_NewRef(Py_None);
  Block* block = PyObject_New(Block, block_type);
  if (block == NULL) return Py_DECREF(items), NULL;
  const size_t size = element_size(*kind, PyTuple_GetItem(items, 0));
  block->keep = items;
  block->data = calloc((size_t)count, size);
  if (block->data == NULL) PyErr_NoMemory();
  for (Py_ssize_t i = 0; !PyErr_Occurred() && i < count; ++i)
    block_element(kind, PyTuple_GetItem(items, i), (char*)block->data + (size_t)i * size, size);
  if (!PyErr_Occurred()) return (PyObject*)block;
  Py_DECREF(block);
  return NULL;
}

static int gwpy_ready(PyObject* module) {
  block_type = (PyTypeObject*)PyType_FromSpec(&block_spec);
  view_type = (PyTypeObject*)PyType_FromSpec(&view_spec);
  if (block_type == NULL || view_type == NULL) return 0;
  PyObject* released = PyCapsule_New(block_type, kReleased, NULL); /* stands for a handle that was given up */
  return released != NULL && PyModule_AddObject(module, "RELEASED", released) == 0 &&
         PyModule_AddObjectRef(module, "View", (PyObject*)view_type) == 0;
}

#endif
