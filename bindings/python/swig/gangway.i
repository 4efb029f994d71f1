// The low-level layer: every public function under its C name. Typemaps go by type and by parameter name, so a function
// that is added to a header needs no line here. Statuses become exceptions, out_* parameters become results, handles
// become capsules that release themselves, pointers take views, blocks, bytes or None.
%module(package="gangway") low
%feature("autodoc", "1");
%{
#include <gangway/gangway.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
%}
%include <stdint.i>
%header %{
#include "support.h"
#include "callbacks.h"
%}
%init %{
#if SWIG_VERSION >= 0x040400  /* the module's second phase, which returns a status */
  if (!gwpy_ready(m)) return -1;
#else
  if (!gwpy_ready(m)) return NULL;
#endif
%}

// --- statuses ---------------------------------------------------------------------------------------------------------
%typemap(out) gw_status {
  if (!gwpy_check($1)) SWIG_fail;
  $result = SWIG_Py_Void();
}
%typemap(ret) gw_status "$result = gwpy_result($result);"
%typemap(out) gw_status code "$result = PyLong_FromLong($1);"

// --- scalar results ---------------------------------------------------------------------------------------------------
%define GW_OUT(TYPE, TO_PYTHON)
%typemap(in, numinputs=0) TYPE * (TYPE value = 0) "$1 = &value;"
%typemap(argout) TYPE * "$result = gwpy_append($result, TO_PYTHON(*$1));"
%enddef
GW_OUT(int32_t, PyLong_FromLong)
GW_OUT(int64_t, PyLong_FromLongLong)
GW_OUT(size_t, PyLong_FromSize_t)
GW_OUT(uint64_t, PyLong_FromUnsignedLongLong)
GW_OUT(double, PyFloat_FromDouble)
// What a work writes later is memory of the caller's, which lives until the work is done.
%define GW_LATER(TYPE, NAME)
%typemap(in) (TYPE *NAME, gw_work **out_work) (gw_work *work = NULL) {
  if (!gwpy_address($input, $1_descriptor, #NAME, (void **)&$1)) SWIG_fail;
  $2 = &work;
}
%typemap(argout) (TYPE *NAME, gw_work **out_work) "$result = gwpy_started($result, *$2, args);"
%enddef
%typemap(in, numinputs=0) void **out_data (void *value = NULL), void **out_handle (void *value = NULL) "$1 = &value;"
%typemap(argout) void **out_data, void **out_handle "$result = gwpy_append($result, PyLong_FromVoidPtr(*$1));"

// --- scalar arguments -------------------------------------------------------------------------------------------------
%define GW_NUMBER(TYPE, LOWEST, HIGHEST)
%typemap(in) TYPE {
  long long number;
  if (!gwpy_integer($input, "$1_name", LOWEST, HIGHEST, &number)) SWIG_fail;
  $1 = (TYPE)number;
}
%enddef
GW_NUMBER(int32_t, INT32_MIN, INT32_MAX)
GW_NUMBER(int64_t, INT64_MIN, INT64_MAX)
%typemap(in) uint64_t, size_t {
  uint64_t number;
  if (!gwpy_unsigned($input, "$1_name", &number)) SWIG_fail;
  $1 = number;
}
%typemap(in) double {
  if (!gwpy_double($input, "$1_name", &$1)) SWIG_fail;
}

// --- memory -----------------------------------------------------------------------------------------------------------
%typemap(in) const void *, void *, void *const *, const int32_t *, const int64_t *, const size_t *, char *text,
    const int64_t prompt[], const int64_t prompts[], const int64_t lengths[], int64_t out_tokens[], int64_t out_counts[],
    double out_log_probs[], double out_norms[], size_t out_sizes[], const char *const *, const char *const [],
    const gw_view *, gw_view *view {
  if (!gwpy_address($input, $descriptor, "$1_name", (void **)&$1)) SWIG_fail;
}
%typemap(argout) const int32_t *, const int64_t *, const size_t *, const double *, const int64_t prompt[], const int64_t prompts[],
    const int64_t lengths[], int64_t out_tokens[], int64_t out_counts[], double out_log_probs[], double out_norms[], size_t out_sizes[] ""
%typemap(out) const void *, void * "$result = PyLong_FromVoidPtr((void *)$1);"
%typemap(in) const char * {
  if (!gwpy_text($input, "$1_name", (const char **)&$1)) SWIG_fail;
}
// The names of parameters and fields that are paths: swig/stubs.py has them, too.
%typemap(in) const char *path, const char *folder, const char *carry_from, const char *json_lines, const char *csv,
    const char *svg {
  if (!gwpy_path($input, "$1_name", (const char **)&$1)) SWIG_fail;
}
%typemap(freearg) const char * ""
%typemap(out) const char * "$result = gwpy_str($1);"
%typemap(memberin) const char * "$1 = $input;"
%typemap(in, numinputs=0) gw_view *out_view (gw_view value) "memset(&value, 0, sizeof value); $1 = &value;"
%typemap(argout) gw_view *out_view "$result = gwpy_append($result, gwpy_view_of($1, swig_obj[0]));"
%typemap(in, numinputs=0) (gw_view out_views[], size_t out_capacity, size_t *out_count)
    (gw_view views[64], size_t count = 0) "$1 = views; $2 = 64; $3 = &count;"
%typemap(argout) (gw_view out_views[], size_t out_capacity, size_t *out_count) {
  $result = gwpy_append($result, gwpy_views_of($1, *$3, swig_obj[0], 1));
}
%typemap(in) struct DLManagedTensorVersioned *managed {
  $1 = PyCapsule_GetPointer($input, "dltensor_versioned");
  if ($1 == NULL) SWIG_fail;
}
%typemap(argout) struct DLManagedTensorVersioned *managed { PyCapsule_SetName(swig_obj[0], "used_dltensor_versioned"); }
%typemap(in, numinputs=0) struct DLManagedTensorVersioned **out_managed (struct DLManagedTensorVersioned *value = NULL)
    "$1 = &value;"
%typemap(argout) struct DLManagedTensorVersioned **out_managed {
  $result = gwpy_append($result, PyCapsule_New(*$1, "dltensor_versioned", gwpy_capsule_free_versioned));
}
// Objects that the library calls back with and frees: a pointer on the object, borrowed as long as the struct keeps it.
// The library's own reference is counted right before the call, when no argument can be refused any more.
%typemap(in) void *user, void *object "$1 = $input == Py_None ? NULL : (void *)$input;"
%typemap(check) const gw_gang_options *options {
  if ($1 != NULL) gwpy_hand_over($1->user, $1->free_user);
  gathering_ranks = $1 != NULL ? $1->size : 0;
}
%typemap(check) const gw_store_callbacks *callbacks, const gw_allocator *allocator,
                const gw_custom_optimizer_options *options {
  if ($1 != NULL) gwpy_hand_over($1->user, $1->free_user);
}
%typemap(check) const gw_custom_options *options {
  if ($1 != NULL) {
    gwpy_hand_over($1->user, $1->free_user);
    gwpy_hand_over_fills($1->parameters, $1->parameter_count);
  }
}
%typemap(check) (const gw_parameter_options *parameters, size_t parameter_count) "gwpy_hand_over_fills($1, $2);"
%typemap(check) (void *user, gw_free_fn release), (void *object, gw_free_fn free_object) "gwpy_hand_over($1, $2);"
// Arrays in structs are copied both ways.
%typemap(in) int64_t [ANY] (int64_t values[$1_dim0]) {
  if (!gwpy_numbers($input, "$1_name", values, $1_dim0)) SWIG_fail;
  $1 = values;
}
%typemap(memberin) int64_t [ANY] "memcpy($1, $input, $1_dim0 * sizeof(int64_t));"
%typemap(out) int64_t [ANY] "$result = gwpy_tuple($1, $1_dim0);"

// --- handles and structs ----------------------------------------------------------------------------------------------
%define GW_HANDLE(X, RETAIN)
%{
static void gwpy_drop_##X(void *handle) {
  Py_BEGIN_ALLOW_THREADS
  gw_##X##_release((gw_##X *)handle);
  Py_END_ALLOW_THREADS
}
static void gwpy_free_##X(PyObject *capsule) { gwpy_drop_##X(PyCapsule_GetPointer(capsule, "gw_" #X)); }
static PyObject *gwpy_wrap_##X(gw_##X *handle) {
  if (handle == NULL) Py_RETURN_NONE;
  PyObject *capsule = PyCapsule_New(handle, "gw_" #X, gwpy_free_##X);
  if (capsule == NULL) gw_##X##_release(handle);
  return capsule;
}
%}
%typemap(in) gw_##X *, const gw_##X * {
  if (!gwpy_handle($input, "gw_" #X, "$1_name", (void **)&$1)) SWIG_fail;
}
%typemap(in) gw_##X *const * {
  if (!gwpy_address($input, $descriptor, "$1_name", (void **)&$1)) SWIG_fail;
}
%typemap(argout) gw_##X *const * ""
%typemap(out) gw_##X * { $result = gwpy_wrap_##X($1 != NULL ? RETAIN($1) : NULL); }
%typemap(out) gw_##X *gw_##X##_retain, gw_##X *gw_##X##_take { $result = gwpy_wrap_##X($1); }
%typemap(in, numinputs=0) gw_##X ** (gw_##X *value = NULL) "$1 = &value;"
%typemap(argout) gw_##X ** { $result = gwpy_append($result, gwpy_wrap_##X(*$1)); }
%ignore gw_##X##_release;
%rename("gw_" #X "_release") gwpy_release_##X;
%nothread gwpy_release_##X;
%inline %{
/* Drops this reference now; the capsule is empty then. */
static PyObject *gwpy_release_##X(PyObject *handle) { return gwpy_release(handle, "gw_" #X, gwpy_drop_##X); }
%}
%enddef

%define GW_STRUCT(X)
%typemap(in) const gw_##X * {
  if (!gwpy_address($input, $descriptor, "$1_name", (void **)&$1)) SWIG_fail;
}
%extend gw_##X {
  gw_##X() {
    gw_##X *made = calloc(1, sizeof *made);
    if (made != NULL) gw_##X##_init(made, sizeof *made);
    return made;
  }
}
%ignore gw_##X::next;
%enddef

// Arrays of handles.
%typemap(in, numinputs=0) (gw_tensor *out_tensors[], size_t out_capacity, size_t *out_count)
    (gw_tensor *tensors[64], size_t count = 0) "$1 = tensors; $2 = 64; $3 = &count;"
%typemap(argout) (gw_tensor *out_tensors[], size_t out_capacity, size_t *out_count) {
  PyObject *all = PyList_New((Py_ssize_t)*$3);
  for (size_t i = 0; all != NULL && i < *$3; ++i) PyList_SetItem(all, (Py_ssize_t)i, gwpy_wrap_tensor($1[i]));
  $result = gwpy_append($result, all);
}
%typemap(in, numinputs=0) gw_gang *out_gangs[] "$1 = NULL;"
%typemap(check) gw_gang *out_gangs[] "$1 = calloc(arg1 > 0 ? (size_t)arg1 : 1, sizeof *$1);"
%typemap(argout) gw_gang *out_gangs[] {
  PyObject *all = PyList_New(arg1);
  for (int32_t i = 0; all != NULL && i < arg1; ++i) PyList_SetItem(all, i, gwpy_wrap_gang($1[i]));
  $result = gwpy_append($result, all);
}
%typemap(freearg) gw_gang *out_gangs[] "free($1);"

// What a collective reads and writes is attached here: a signal's handler may raise before Python's next line.
%typemap(argout) gw_work **out_work "$result = gwpy_started($result, *$1, args);"

// Facts of one load: cheaper than giving up the interpreter's lock.
%nothreadallow gw_gang_rank;
%nothreadallow gw_gang_size;
%nothreadallow gw_dtype_bytes;
%nothreadallow gw_tensor_is_read_only;

%immutable gw_call::gangs;
%ignore gw_get_api;
%include "headers.i"
%include "callbacks.i"
