/* C functions that the library calls and that call Python, under the interpreter's lock. `user` is the
 * callable or the object, owned until gwpy_free. An exception is kept and comes out of the call in progress
 * as itself. */
#ifndef GANGWAY_PYTHON_CALLBACKS_H
#define GANGWAY_PYTHON_CALLBACKS_H

static void gwpy_free(void* user) {
  if (!Py_IsInitialized()) return; /* the interpreter is gone: nothing to give back */
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *type, *value, *trace; /* a failing call may be on its way through this thread */
  PyErr_Fetch(&type, &value, &trace);
  Py_XDECREF((PyObject*)user);
  PyErr_Restore(type, value, trace);
  PyGILState_Release(state);
}

/* The reference that the library drops by gwpy_free, also when it refuses. */
static void gwpy_hand_over(void* user, gw_free_fn free_user) {
  if (free_user == gwpy_free) Py_XINCREF((PyObject*)user);
}

/* Those of initialisers; one that several parameters share is freed once. */
static void gwpy_hand_over_fills(const gw_parameter_options* parameters, size_t count) {
  for (size_t i = 0; parameters != NULL && i < count; ++i) {
    const gw_init_options* fill = parameters[i].initializer;
    int earlier = 0;
    for (size_t j = 0; j < i && !earlier; ++j) earlier = parameters[j].initializer == fill;
    if (fill != NULL && !earlier) gwpy_hand_over(fill->user, fill->free_user);
  }
}

static PyObject* gwpy_wrap_work(gw_work* handle); /* by GW_HANDLE */

/* A work as a result. The arguments behind the first, which is the handle, live until it is done. */
static PyObject* gwpy_started(PyObject* result, gw_work* work, PyObject* args) {
  result = gwpy_append(result, gwpy_wrap_work(work));
  PyObject* kept = PyTuple_GetSlice(args, 1, PyTuple_Size(args));
  if (result == NULL || kept == NULL) return Py_XDECREF(result), Py_XDECREF(kept), NULL;
  gw_status status;
  Py_BEGIN_ALLOW_THREADS status = gw_work_attach(work, kept, gwpy_free);
  Py_END_ALLOW_THREADS if (!gwpy_check(status)) Py_CLEAR(result);
  return result;
}

/* The exception that is on its way as the failure's text, which peers hear too. */
static void tell_error(void) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const TypeName name = name_of_type(type);
  PyObject* text = PyUnicode_FromFormat("%s: %S", name.text, value);
  const char* line = text != NULL ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  PyErr_Clear(); /* its own __str__ may fail, or a surrogate has no UTF-8 */
  gw_error_set(line != NULL ? line : name.text);
  Py_XDECREF(text);
  PyErr_Restore(type, value, trace);
}

static gw_status finish(PyObject* result, PyGILState_STATE state) {
  gw_status status = GW_OK;
  if (result == NULL) {
    tell_error();
    status = keep_error();
  }
  Py_XDECREF(result);
  PyGILState_Release(state);
  return status;
}

static gw_status gwpy_call(void* user, gw_call* call) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* argument = SWIG_NewPointerObj(call, SWIGTYPE_p_gw_call, SWIG_POINTER_NOSHADOW);
  PyObject* result = argument != NULL ? PyObject_CallFunctionObjArgs((PyObject*)user, argument, NULL) : NULL;
  Py_XDECREF(argument);
  return finish(result, state);
}

static int32_t gwpy_accepts(void* user, gw_dtype dtype) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* result = PyObject_CallMethod((PyObject*)user, "accepts", "i", (int)dtype);
  const int answer = result != NULL ? PyObject_IsTrue(result) : -1;
  if (answer < 0) {
    tell_error();
    keep_error();
    kept_answer = 1;
  }
  Py_XDECREF(result);
  PyGILState_Release(state);
  return answer == 1;
}

static gw_status gwpy_fill(void* user, int64_t first_row, int64_t last_row, void* out_data, size_t count,
                           gw_dtype dtype) {
  const PyGILState_STATE state = PyGILState_Ensure();
  return finish(PyObject_CallFunction((PyObject*)user, "LLNni", (long long)first_row, (long long)last_row,
                                      PyLong_FromVoidPtr(out_data), (Py_ssize_t)count, (int)dtype),
                state);
}

/* Of the gang that this thread creates: how many ranks' bytes all_gather is to give. */
static _Thread_local int32_t gathering_ranks;

static gw_status gwpy_all_gather(void* user, const void* input, size_t size, void* output) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const size_t whole = (size_t)gathering_ranks * size; /* before the callable creates a gang itself */
  PyObject* all = PyObject_CallFunction((PyObject*)user, "y#", (const char*)input, (Py_ssize_t)size);
  char* bytes = NULL;
  Py_ssize_t length = 0;
  if (all != NULL && PyBytes_AsStringAndSize(all, &bytes, &length) == 0) {
    if ((size_t)length == whole)
      memcpy(output, bytes, whole);
    else
      refuse("all_gather gave %zd bytes, %zu are needed, %zu of each rank", length, whole, size);
  }
  if (PyErr_Occurred()) Py_CLEAR(all);
  return finish(all, state);
}

static gw_status gwpy_put(void* user, const char* key, const void* value, size_t size) {
  const PyGILState_STATE state = PyGILState_Ensure();
  return finish(PyObject_CallMethod((PyObject*)user, "put", "sy#", key, (const char*)value, (Py_ssize_t)size),
                state);
}

static gw_status gwpy_get(void* user, const char* key, void* value, size_t capacity, int64_t* out_size) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* found = PyObject_CallMethod((PyObject*)user, "get", "s", key);
  char* bytes = NULL;
  Py_ssize_t size = -1;
  if (found != NULL && found != Py_None && PyBytes_AsStringAndSize(found, &bytes, &size) == 0)
    memcpy(value, bytes, (size_t)size < capacity ? (size_t)size : capacity);
  if (PyErr_Occurred()) Py_CLEAR(found);
  *out_size = size;
  return finish(found, state);
}

static gw_status gwpy_remove(void* user, const char* key) {
  const PyGILState_STATE state = PyGILState_Ensure();
  return finish(PyObject_CallMethod((PyObject*)user, "remove", "s", key), state);
}

/* The callable gets (name, [value, gradient], states, lr, weight_decay, step). */
static gw_status gwpy_step(void* user, const gw_optimizer_call* call) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const gw_view own[] = {*call->value, *call->gradient};
  PyObject* values = gwpy_views_of(own, 2, NULL, 0);
  PyObject* states = gwpy_views_of(call->states, (size_t)call->state_count, NULL, 0);
  PyObject* result = NULL;
  if (values != NULL && states != NULL)
    result = PyObject_CallFunction((PyObject*)user, "sOOddL", call->name, values, states, call->lr,
                                   call->weight_decay, (long long)call->step);
  Py_XDECREF(values);
  Py_XDECREF(states);
  return finish(result, state);
}

static gw_status gwpy_schedule(void* user, int64_t step, double* out_factor) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* result = PyObject_CallFunction((PyObject*)user, "L", (long long)step);
  if (result != NULL) *out_factor = PyFloat_AsDouble(result);
  if (PyErr_Occurred()) Py_CLEAR(result);
  return finish(result, state);
}

/* The callable gets (row, token) and ends the generation by False. */
static gw_status gwpy_token(void* user, int64_t row, int64_t token, int32_t* stop) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* result = PyObject_CallFunction((PyObject*)user, "LL", (long long)row, (long long)token);
  *stop = result == Py_False;
  return finish(result, state);
}

/* The callable gives the capsule of a model, which stays its own. */
static gw_status gwpy_build(void* user, gw_module** out_model) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* result = PyObject_CallNoArgs((PyObject*)user);
  gw_module* model = result != NULL ? PyCapsule_GetPointer(result, "gw_module") : NULL;
  if (model != NULL) *out_model = gw_module_retain(model);
  if (PyErr_Occurred()) Py_CLEAR(result);
  return finish(result, state);
}

static PyObject* gwpy_wrap_gangs(gw_gangs* handle);

/* The callable gets the capsule of the gangs and gives (loss, the capsule of a model). */
static gw_status gwpy_groups_step(void* user, gw_gangs* gangs, double* out_loss, gw_module** out_model) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* handle = gwpy_wrap_gangs(gw_gangs_retain(gangs));
  PyObject* result = handle != NULL ? PyObject_CallFunction((PyObject*)user, "O", handle) : NULL;
  Py_XDECREF(handle);
  PyObject* model = NULL;
  if (result != NULL && PyArg_ParseTuple(result, "dO", out_loss, &model)) {
    gw_module* const made = PyCapsule_GetPointer(model, "gw_module");
    if (made != NULL) *out_model = gw_module_retain(made);
  }
  if (PyErr_Occurred()) Py_CLEAR(result);
  return finish(result, state);
}

/* Ends a wait when a signal's handler raised, as KeyboardInterrupt does. */
static int32_t gwpy_interrupt(void* user) {
  (void)user;
  const PyGILState_STATE state = PyGILState_Ensure();
  const int raised = PyErr_CheckSignals() != 0;
  if (raised) {
    keep_error();
    kept_signal = 1;
  }
  PyGILState_Release(state);
  return raised;
}

/* --- what a callback sees
 * ------------------------------------------------------------------------------------------- */

static gw_call* call_of(PyObject* given) {
  void* call = NULL;
  if (!SWIG_IsOK(SWIG_ConvertPtr(given, &call, SWIGTYPE_p_gw_call, 0)) || call == NULL)
    PyErr_SetString(PyExc_TypeError, "a gw_call is wanted");
  return call;
}

/* call_views(call, which, read_only) -> list of View or None; which is the field's name. */
static PyObject* gwpy_call_views(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* given;
  const char* which;
  int read_only;
  if (!PyArg_ParseTuple(args, "Osp", &given, &which, &read_only)) return NULL;
  gw_call* call = call_of(given);
  if (call == NULL) return NULL;
  const struct {
    const char* name;
    const gw_view* views;
    int32_t count;
  } fields[] = {{"inputs", call->inputs, call->input_count},
                {"outputs", call->outputs, call->output_count},
                {"output_grads", call->output_grads, call->output_count},
                {"input_grads", call->input_grads, call->input_count},
                {"parameters", call->parameters, call->parameter_count},
                {"parameter_grads", call->parameter_grads, call->parameter_count}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i)
    if (strcmp(which, fields[i].name) == 0)
      return gwpy_views_of(fields[i].views, fields[i].views != NULL ? (size_t)fields[i].count : 0, NULL,
                           read_only);
  return PyErr_Format(PyExc_KeyError, "%s", which);
}

/* call_facts(call) -> (phase, training, recomputing, microbatch, step, seed, loss_scale): at once, for each
 * callback asks. */
static PyObject* gwpy_call_facts(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* given;
  if (!PyArg_ParseTuple(args, "O", &given)) return NULL;
  const gw_call* call = call_of(given);
  if (call == NULL) return NULL;
  return Py_BuildValue("iNNiLKd", (int)call->phase, PyBool_FromLong(call->training),
                       PyBool_FromLong(call->recomputing), (int)call->microbatch, (long long)call->step,
                       (unsigned long long)call->seed, call->loss_scale);
}

/* call_shapes(call) -> ((shape, dtype) of each input, count of outputs): the shapes phase's question. */
static PyObject* gwpy_call_shapes(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* given;
  if (!PyArg_ParseTuple(args, "O", &given)) return NULL;
  const gw_call* call = call_of(given);
  PyObject* all = call != NULL ? PyTuple_New(call->input_count) : NULL;
  for (int32_t i = 0; all != NULL && i < call->input_count; ++i) {
    const gw_view* v = &call->inputs[i];
    PyObject* item = Py_BuildValue("Ni", gwpy_tuple(v->shape, v->ndim), (int)v->dtype);
    if (item == NULL) return Py_DECREF(all), NULL;
    PyTuple_SetItem(all, i, item);
  }
  return all != NULL ? Py_BuildValue("Ni", all, (int)call->output_count) : NULL;
}

/* set_shape(call, output, dims, dtype): the shapes phase's answer. */
static PyObject* gwpy_set_shape(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *given, *dims;
  int output, dtype;
  if (!PyArg_ParseTuple(args, "OiOi", &given, &output, &dims, &dtype)) return NULL;
  gw_call* call = call_of(given);
  if (call == NULL) return NULL;
  if (output < 0 || output >= call->output_count) {
    refuse("output is %d, the module has %d", output, (int)call->output_count);
    return NULL;
  }
  gw_view* view = &call->outputs[output];
  const Py_ssize_t ndim = PySequence_Size(dims);
  if (ndim < 0 || !gwpy_numbers(dims, "shape", (int64_t*)view->shape, kViewDims)) return NULL;
  view->ndim = (int32_t)ndim;
  view->dtype = dtype;
  Py_RETURN_NONE;
}

/* call_state(call[, state]): what forward left for backward, or None; with a second argument, leaves it. */
static PyObject* gwpy_call_state(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *given, *state = NULL;
  if (!PyArg_ParseTuple(args, "O|O", &given, &state)) return NULL;
  gw_call* call = call_of(given);
  if (call == NULL) return NULL;
  if (call->state == NULL) Py_RETURN_NONE;
  if (state == NULL) return Py_NewRef(*call->state != NULL ? (PyObject*)*call->state : Py_None);
  PyObject* before = (PyObject*)*call->state;
  *call->state = Py_NewRef(state);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

#endif
