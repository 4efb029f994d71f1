/* Views out: memory of the library, which NumPy, PyTorch and JAX take through DLPack, and the View type itself. */
#ifndef GANGWAY_PYTHON_EXPORT_H
#define GANGWAY_PYTHON_EXPORT_H

static PyObject* gwpy_wrap_tensor(gw_tensor* handle); /* by GW_HANDLE */

static void drop_export(void* view) {
  if (!Py_IsInitialized()) return; /* the interpreter is gone: nothing to give back */
  const PyGILState_STATE state = PyGILState_Ensure();
  ((View*)view)->exports--;
  Py_DECREF((PyObject*)view);
  PyGILState_Release(state);
}

static void drop_versioned(struct DLManagedTensorVersioned* managed) {
  drop_export(managed->manager_ctx);
  free(managed);
}

static void drop_old(OldManaged* managed) {
  drop_export(managed->manager_ctx);
  free(managed);
}

/* Capsules that no one took. */
static void gwpy_capsule_free_versioned(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return;
  struct DLManagedTensorVersioned* managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
  if (managed->deleter != NULL) managed->deleter(managed);
}

static void capsule_free_old(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  OldManaged* managed = PyCapsule_GetPointer(capsule, "dltensor");
  if (managed->deleter != NULL) managed->deleter(managed);
}

static PyObject* export_versioned(View* view, gw_dtype dtype, uint64_t flags) {
  struct DLManagedTensorVersioned* managed = calloc(1, sizeof *managed);
  if (managed == NULL) return PyErr_NoMemory();
  managed->version.major = 1;
  managed->manager_ctx = Py_NewRef((PyObject*)view);
  managed->deleter = drop_versioned;
  managed->flags = flags | (view->read_only ? kReadOnlyFlag : 0);
  managed->tensor = view->view;
  managed->tensor.dtype = dtype;
  view->exports++;
  return PyCapsule_New(managed, "dltensor_versioned", gwpy_capsule_free_versioned);
}

/* `immutable`: the consumer's arrays are never written, so it need not be told. */
static PyObject* export_old(View* view, gw_dtype dtype, int immutable) {
  if (view->read_only && !immutable) {
    PyErr_SetString(
        PyExc_BufferError,
        "the memory is read-only, which DLPack says from version 1.0 on: ask with max_version=(1, 0)");
    return NULL;
  }
  OldManaged* managed = calloc(1, sizeof *managed);
  if (managed == NULL) return PyErr_NoMemory();
  managed->manager_ctx = Py_NewRef((PyObject*)view);
  managed->deleter = drop_old;
  managed->tensor = view->view;
  managed->tensor.dtype = dtype;
  view->exports++;
  return PyCapsule_New(managed, "dltensor", capsule_free_old);
}

/* `given`, a pair of integers, as two; 0 with an exception when it is none. */
static int pair_of(PyObject* given, const char* refusal, int* first, int* second) {
  PyObject* pair = PySequence_Tuple(given);
  const int fits = pair != NULL && PyArg_ParseTuple(pair, refusal, first, second);
  Py_XDECREF(pair);
  return fits;
}

/* The view's elements in memory of their own, which may be written. */
static View* copied(const View* view) {
  gw_tensor* made = NULL;
  gw_status status;
  Py_BEGIN_ALLOW_THREADS status = gw_tensor_copy(&view->view, &made);
  Py_END_ALLOW_THREADS if (!gwpy_check(status)) return NULL;
  gw_view memory;
  gw_tensor_view(made, &memory);
  PyObject* owner = gwpy_wrap_tensor(made);
  View* copy = owner != NULL ? view_new(&memory, owner) : NULL;
  Py_XDECREF(owner);
  return copy;
}

/* The consumer's stream, by DLPack's numbers, waits for what the library has put on the memory's GPU. None and 1 are CUDA's
 * legacy default stream, on which every call is ordered; -1 asks for no order. 0: an exception. */
static int order_consumer(const View* view, PyObject* stream) {
  if (view->view.device_type != GW_DEVICE_CUDA || stream == Py_None) return 1;
  if (!PyLong_Check(stream))
    return PyErr_Format(PyExc_TypeError, "stream is a %.100s, not an integer or None", TYPE_NAME(stream)), 0;
  const long long number = PyLong_AsLongLong(stream);
  if (number == -1 && PyErr_Occurred()) return 0;
  if (number == -1 || number == kLegacyStream) return 1;
  if (number < 1)
    return PyErr_Format(
               PyExc_BufferError,
               "stream is %lld, which names none: 1 is CUDA's legacy default stream, 2 that of the thread, "
               "-1 asks for no order",
               number),
           0;
  PyObject* owner = view->owner;
  while (owner != NULL && Py_TYPE(owner) == view_type) owner = ((View*)owner)->owner;
  if (owner == NULL || !PyCapsule_IsValid(owner, "gw_tensor"))
    return PyErr_Format(
               PyExc_BufferError,
               "stream is %lld, but this memory is ordered on CUDA's legacy default stream, 1, alone",
               number),
           0;
  gw_tensor* const tensor = PyCapsule_GetPointer(owner, "gw_tensor");
  gw_status status;
  Py_BEGIN_ALLOW_THREADS status = gw_tensor_order(tensor, (void*)(intptr_t)number);
  Py_END_ALLOW_THREADS return gwpy_check(status);
}

/* An unsigned integer of the size of an element. */
static gw_dtype word_of(gw_dtype dtype) {
  const size_t bytes = gw_dtype_bytes(dtype);
  return bytes == 1 ? GW_U8 : bytes == 2 ? GW_U16 : bytes == 4 ? GW_U32 : GW_U64;
}

/* By the array API's rules: memory on another device than is asked for is refused, copy=True copies, and a
 * consumer that names no version, or one before 1.0, gets the old capsule. `words`: the elements as unsigned
 * integers of their size, for a consumer that gives them their type by himself. */
static PyObject* view_dlpack(PyObject* object, PyObject* args, PyObject* names) {
  static char* keywords[] = {"stream", "max_version", "dl_device", "copy", "immutable", "words", NULL};
  PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
  View* view = (View*)object;
  int major = 0, minor = 0, immutable = 0, words = 0;
  int kind = view->view.device_type, id = view->view.device_id;
  if (!PyArg_ParseTupleAndKeywords(args, names, "|$OOOOpp", keywords, &stream, &version, &device, &copy,
                                   &immutable, &words) ||
      (version != Py_None && !pair_of(version, "ii;max_version is no (major, minor)", &major, &minor)) ||
      (device != Py_None && !pair_of(device, "ii;dl_device is no (device type, device id)", &kind, &id)))
    return NULL;
  if (kind != view->view.device_type || id != view->view.device_id)
    return PyErr_Format(PyExc_BufferError,
                        "dl_device is %d:%d, but the memory is on device %d:%d (DLPack's numbers)", kind, id,
                        (int)view->view.device_type, (int)view->view.device_id);
  if (!order_consumer(view, stream)) return NULL;
  const int wanted = copy == Py_None ? 0 : PyObject_IsTrue(copy);
  if (wanted < 0 || (wanted && (view = copied(view)) == NULL)) return NULL;
  const gw_dtype dtype = words ? word_of(view->view.dtype) : view->view.dtype;
  PyObject* capsule = major >= 1 ? export_versioned(view, dtype, wanted ? kCopiedFlag : 0)
                                 : export_old(view, dtype, immutable);
  if (wanted) Py_DECREF(view);
  return capsule;
}

/* __array__, which np.asarray calls. The package makes the array, because NumPy lacks some of the types. */
static PyObject* view_array(PyObject* object, PyObject* args, PyObject* names) {
  PyObject* const package = PyImport_ImportModule("gangway.numpy_arrays");
  PyObject* const make = package != NULL ? PyObject_GetAttrString(package, "to_array") : NULL;
  PyObject* const first = make != NULL ? PyTuple_Pack(1, object) : NULL;
  PyObject* const all = first != NULL ? PySequence_Concat(first, args) : NULL;
  PyObject* const made = all != NULL ? PyObject_Call(make, all, names) : NULL;
  Py_XDECREF(all);
  Py_XDECREF(first);
  Py_XDECREF(make);
  Py_XDECREF(package);
  return made;
}

static PyObject* view_device(PyObject* object, PyObject* unused) {
  (void)unused;
  return Py_BuildValue("ii", (int)((View*)object)->view.device_type, (int)((View*)object)->view.device_id);
}

static PyObject* device_name(const gw_view* view) {
  if (view->device_type == GW_DEVICE_CPU) return PyUnicode_FromString("cpu");
  if (view->device_type == GW_DEVICE_CUDA) return PyUnicode_FromFormat("cuda:%d", (int)view->device_id);
  return PyUnicode_FromFormat("device %d:%d (DLPack's numbers)", (int)view->device_type,
                              (int)view->device_id);
}

static PyObject* view_get(PyObject* object, void* what) {
  const View* view = (const View*)object;
  switch ((intptr_t)what) {
    case 0: return PyLong_FromVoidPtr(address_of(view));
    case 1: return gwpy_tuple(view->shape, view->view.ndim);
    case 2: return gwpy_tuple(view->strides, view->view.ndim);
    case 3: return PyLong_FromLong(view->view.dtype);
    case 4: return PyLong_FromLongLong(count_of(&view->view));
    case 5: return PyBool_FromLong(contiguous(view));
    case 6: return PyBool_FromLong(view->read_only);
    case 7: return device_name(&view->view);
    case 8:
      return view->view.device_type == GW_DEVICE_CUDA ? PyLong_FromLong(kLegacyStream) : Py_NewRef(Py_None);
    default: return PyLong_FromSsize_t(view->exports);
  }
}

static int view_set_read_only(PyObject* object, PyObject* value, void* what) {
  (void)what;
  const int on = value != NULL ? PyObject_IsTrue(value) : -1;
  if (on >= 0) ((View*)object)->read_only = (char)on;
  return on >= 0 ? 0 : -1;
}

static PyGetSetDef view_facts[] = {{"address", view_get, NULL, "of the first element", (void*)0},
                                   {"shape", view_get, NULL, NULL, (void*)1},
                                   {"strides", view_get, NULL, "in elements", (void*)2},
                                   {"dtype", view_get, NULL, "a gw_dtype", (void*)3},
                                   {"count", view_get, NULL, "elements", (void*)4},
                                   {"contiguous", view_get, NULL, "row-major", (void*)5},
                                   {"read_only", view_get, view_set_read_only, NULL, (void*)6},
                                   {"device", view_get, NULL, "cpu, cuda:0 and so on", (void*)7},
                                   {"stream", view_get, NULL, "that calls on it are ordered on", (void*)8},
                                   {"exports", view_get, NULL, "DLPack exports that live", (void*)9},
                                   {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef view_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))view_dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", view_device, METH_NOARGS, NULL},
    {"__array__", (PyCFunction)(void (*)(void))view_array, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot view_slots[] = {
    {Py_tp_dealloc, view_free},
    {Py_tp_doc, "Memory with what keeps it alive; NumPy, PyTorch and JAX take it by from_dlpack."},
    {Py_tp_methods, view_methods},
    {Py_tp_getset, view_facts},
    {0, NULL}};
static PyType_Spec view_spec = {.name = "gangway._low.View",
                                .basicsize = sizeof(View),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = view_slots};

#endif
