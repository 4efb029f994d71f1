// Function pointers that Python callables stand behind, and what the package needs besides the public functions.
%constant gw_call_fn py_call = gwpy_call;
%constant int32_t (*py_accepts)(void *, gw_dtype) = gwpy_accepts;
%constant gw_status (*py_fill)(void *, int64_t, int64_t, void *, size_t, gw_dtype) = gwpy_fill;
%constant gw_all_gather_fn py_all_gather = gwpy_all_gather;
%constant gw_status (*py_put)(void *, const char *, const void *, size_t) = gwpy_put;
%constant gw_status (*py_get)(void *, const char *, void *, size_t, int64_t *) = gwpy_get;
%constant gw_status (*py_remove)(void *, const char *) = gwpy_remove;
%constant gw_optimizer_step_fn py_step = gwpy_step;
%constant gw_schedule_fn py_schedule = gwpy_schedule;
%constant gw_token_fn py_token = gwpy_token;
%constant gw_build_fn py_build = gwpy_build;
%constant gw_groups_step_fn py_groups_step = gwpy_groups_step;
%constant gw_free_fn py_free = gwpy_free;
%constant gw_interrupt_fn py_interrupt = gwpy_interrupt;

%native(borrow) PyObject *gwpy_borrow(PyObject *, PyObject *);
%native(make_view) PyObject *gwpy_make_view(PyObject *, PyObject *);
%native(block) PyObject *gwpy_block(PyObject *, PyObject *);
%native(call_views) PyObject *gwpy_call_views(PyObject *, PyObject *);
%native(call_shapes) PyObject *gwpy_call_shapes(PyObject *, PyObject *);
%native(call_facts) PyObject *gwpy_call_facts(PyObject *, PyObject *);
%native(call_state) PyObject *gwpy_call_state(PyObject *, PyObject *);
%native(set_shape) PyObject *gwpy_set_shape(PyObject *, PyObject *);
%native(set_error_factory) PyObject *gwpy_set_error_factory(PyObject *, PyObject *);
