#include "dlpack.h"
#include "testing.h"

#include <math.h>

static void view_is_row_major(void** state) {
  (void)state;
  float data[6] = {0};
  const int64_t shape[2] = {2, 3};
  gw_view view;
  assert_ok(gw_view_set(&view, data, shape, 2, GW_F32));
  assert_int_equal(sizeof view, 48);
  assert_ptr_equal(view.data, data);
  assert_int_equal(view.device_type, GW_DEVICE_CPU);
  assert_int_equal(view.ndim, 2);
  assert_int_equal(view.dtype, GW_F32);
  assert_null(view.strides);
  assert_int_equal(view.byte_offset, 0);
  assert_refused(gw_view_set(NULL, data, shape, 2, GW_F32), "view is null");
  assert_refused(gw_view_set(&view, data, NULL, 2, GW_F32), "shape is null");
  assert_refused(gw_view_set(&view, data, shape, -1, GW_F32), "ndim is -1");
  assert_refused(gw_view_set(&view, data, shape, 9, GW_F32), "ndim is 9");
  assert_refused(gw_view_set(&view, data, shape, 2, GW_DTYPE_NONE), "dtype");
  assert_ok(gw_view_set(&view, data, NULL, 0, GW_F32)); /* a scalar */
}

static void copy_follows_strides_and_offset(void** state) {
  (void)state;
  int16_t data[] = {9, 1, 2, 3, 4, 5, 6};
  const int64_t shape[2] = {3, 2}, strides[2] = {1, 3}, wanted[6] = {1, 4, 2, 5, 3, 6};
  gw_view view, got;
  assert_ok(gw_view_set(&view, data, shape, 2, GW_I16));
  view.strides = strides; /* the transpose of [2, 3] */
  view.byte_offset = 2;
  gw_tensor* tensor = NULL;
  assert_ok(gw_tensor_copy(&view, &tensor));
  assert_ok(gw_tensor_view(tensor, &got));
  assert_int_equal(got.ndim, 2);
  assert_int_equal(got.shape[0], 3);
  assert_int_equal(got.shape[1], 2);
  assert_int_equal(got.strides[0], 2);
  assert_int_equal(got.strides[1], 1);
  for (int i = 0; i < 6; ++i) assert_int_equal(((int16_t*)got.data)[i], wanted[i]);
  assert_ptr_equal(gw_tensor_retain(tensor), tensor);
  gw_tensor_release(tensor);
  assert_ok(gw_tensor_view(tensor, &got)); /* one reference is left */
  gw_tensor_release(tensor);
  gw_tensor_release(NULL);
  assert_null(gw_tensor_retain(NULL));
}

static void bad_views_are_refused(void** state) {
  (void)state;
  float data[4];
  int64_t shape[2] = {2, 2};
  const int64_t negative[2] = {-1, 1}, huge[2] = {INT64_MAX, INT64_MAX};
  gw_view good, view;
  gw_tensor* tensor = (gw_tensor*)data;
  assert_ok(gw_view_set(&good, data, shape, 2, GW_F32));
  assert_refused(gw_tensor_copy(&good, NULL), "out_tensor is null");
  assert_refused(gw_tensor_copy(NULL, &tensor), "view is null");
  assert_null(tensor);
  assert_refused(gw_tensor_view(NULL, &view), "tensor is null");
  assert_refused((view = good, view.data = NULL, gw_tensor_copy(&view, &tensor)), "null data");
  assert_refused((view = good, view.ndim = 9, gw_tensor_copy(&view, &tensor)), "ndim 9");
  assert_refused((view = good, view.ndim = -2, gw_tensor_copy(&view, &tensor)), "ndim -2");
  assert_refused((view = good, view.shape = NULL, gw_tensor_copy(&view, &tensor)), "shape is null");
  assert_refused((view = good, view.strides = negative, gw_tensor_copy(&view, &tensor)), "strides[0] is -1");
  assert_refused((view = good, view.strides = huge, gw_tensor_copy(&view, &tensor)), "strides[0]");
  assert_refused((view = good, view.device_type = GW_DEVICE_CUDA, gw_tensor_copy(&view, &tensor)),
                 "device type 2");
  assert_refused((view = good, view.dtype = 0x22002, gw_tensor_copy(&view, &tensor)), "dtype");
  shape[0] = -3;
  assert_refused((view = good, gw_tensor_copy(&view, &tensor)), "dim 0 of a tensor is -3");
  shape[0] = INT64_MAX;
  assert_refused((view = good, gw_tensor_copy(&view, &tensor)), "elements");
  shape[0] = 0; /* there is nothing to point at */
  assert_ok((view = good, view.data = NULL, gw_tensor_copy(&view, &tensor)));
  assert_ok(gw_tensor_view(tensor, &view));
  assert_int_equal(view.shape[0], 0);
  gw_tensor_release(tensor);
}

static int deleted;
static void delete_managed(struct DLManagedTensorVersioned* self) {
  (void)self;
  ++deleted;
}

static struct DLManagedTensorVersioned managed_of(float* data, int64_t* shape) {
  struct DLManagedTensorVersioned m;
  memset(&m, 0, sizeof m);
  m.major = 1;
  m.deleter = delete_managed;
  gw_view_set(&m.tensor, data, shape, 1, GW_F32);
  return m;
}

static void dlpack_in_keeps_and_deletes_once(void** state) {
  (void)state;
  float data[3] = {1, 2, 3};
  int64_t shape[1] = {3};
  struct DLManagedTensorVersioned m = managed_of(data, shape);
  gw_tensor* tensor = NULL;
  deleted = 0;
  assert_ok(gw_tensor_from_dlpack(&m, &tensor));
  gw_view view;
  assert_ok(gw_tensor_view(tensor, &view));
  assert_ptr_equal(view.data, data); /* no copy */
  struct DLManagedTensorVersioned* out = NULL;
  assert_ok(gw_tensor_to_dlpack(tensor, &out));
  gw_tensor_release(tensor);
  assert_int_equal(deleted, 0); /* the export keeps it */
  assert_int_equal(out->major, 1);
  assert_ptr_equal(out->tensor.data, data);
  assert_int_equal(out->tensor.dtype, GW_F32);
  assert_int_equal(out->tensor.shape[0], 3);
  out->deleter(out);
  assert_int_equal(deleted, 1);
}

static void dlpack_read_only_stays_so(void** state) {
  (void)state;
  float data[1] = {1};
  int64_t shape[1] = {1};
  struct DLManagedTensorVersioned m = managed_of(data, shape), *out = NULL;
  m.flags = 1;
  gw_tensor* tensor = NULL;
  assert_ok(gw_tensor_from_dlpack(&m, &tensor));
  assert_ok(gw_tensor_to_dlpack(tensor, &out));
  assert_int_equal(out->flags & 1, 1);
  assert_int_equal(gw_tensor_is_read_only(tensor), 1);
  assert_int_equal(gw_tensor_is_read_only(NULL), -1);
  out->deleter(out);
  gw_tensor_release(tensor);
}

static void dlpack_refusals_leave_the_tensor_with_the_caller(void** state) {
  (void)state;
  float data[2] = {1, 2};
  int64_t shape[1] = {2};
  struct DLManagedTensorVersioned m = managed_of(data, shape), *out = NULL;
  gw_tensor* tensor = NULL;
  deleted = 0;
  assert_refused(gw_tensor_from_dlpack(NULL, &tensor), "managed is null");
  assert_refused(gw_tensor_from_dlpack(&m, NULL), "out_tensor is null");
  m.major = 2;
  assert_refused_as(gw_tensor_from_dlpack(&m, &tensor), GW_E_NOT_SUPPORTED, "version.major is 2");
  m = managed_of(data, shape);
  m.tensor.dtype = 0x42002;
  assert_refused_as(gw_tensor_from_dlpack(&m, &tensor), GW_E_NOT_SUPPORTED, "lanes is 4");
  m = managed_of(data, shape);
  m.tensor.device_type = GW_DEVICE_CUDA;
  assert_refused(gw_tensor_from_dlpack(&m, &tensor), "device type 2");
  m = managed_of(NULL, shape);
  assert_refused(gw_tensor_from_dlpack(&m, &tensor), "null data");
  assert_null(tensor);
  assert_int_equal(deleted, 0);
  assert_refused(gw_tensor_to_dlpack(NULL, &out), "tensor is null");
  assert_null(out);
  m = managed_of(data, shape);
  m.deleter = NULL; /* is allowed */
  assert_ok(gw_tensor_from_dlpack(&m, &tensor));
  assert_refused(gw_tensor_to_dlpack(tensor, NULL), "out_managed is null");
  assert_refused(gw_tensor_view(tensor, NULL), "out_view is null");
  assert_refused(gw_tensor_order(NULL, NULL), "tensor is null");
  gw_tensor_release(tensor);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(view_is_row_major),
                                     cmocka_unit_test(copy_follows_strides_and_offset),
                                     cmocka_unit_test(bad_views_are_refused),
                                     cmocka_unit_test(dlpack_in_keeps_and_deletes_once),
                                     cmocka_unit_test(dlpack_read_only_stays_so),
                                     cmocka_unit_test(dlpack_refusals_leave_the_tensor_with_the_caller)};
  return cmocka_run_group_tests_name("capi_view", tests, NULL, NULL);
}
