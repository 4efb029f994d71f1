# Suites that run a second time, on the deferred device (NAME.deferred) or on the software GPU (NAME.cuda). A row names a fact
# that only this device can show; the repeat runs always. Every other repeat has the label "repeat": it shows again what the
# suite has shown on the CPU, and runs with GANGWAY_TEST_ALL=1 alone, as .ci/full does.
set(GANGWAY_REPEATS_IN_EVERY_RUN
  # the module's kernels compute the formulas
  attention_test.cuda attention_merge_test.cuda elementwise_test.cuda embedding_test.cuda gemm_test.cuda head_loss_test.cuda
  loss_parts_test.cuda norm_test.cuda optimizer_test.cuda rope_test.cuda swiglu_test.cuda
  # an operation reads what an earlier one wrote, though its stream runs late
  elementwise_test.deferred
  # layers, and their frames, order their work by streams and events alone
  nn_test.deferred
  # gathers, reductions and updates of parameter groups are ordered over side streams
  parallel_test.deferred
  # a ring reads keys and values that have arrived; stages read messages that have arrived
  context_test.deferred pipeline_pulled_test.deferred
  # a step's host waits only where impl/README.md says; what is offloaded comes back in time
  train_step_test.deferred train_offload_test.deferred train_activation_offload_test.deferred
  # steps over NCCL, its groups, and copies between a GPU and the host
  train_activation_offload_test.cuda train_context_test.cuda train_offload_test.cuda train_pipeline_test.cuda
  train_tensor_test.cuda
  # the C layer hands over what a call's stream keeps, and orders a caller's stream
  capi_streams_test.cuda capi_gang_collectives_test.cuda)

# label_repeat(TEST): gives it the label "repeat" unless a row above names it.
function(label_repeat test)
  if(NOT test IN_LIST GANGWAY_REPEATS_IN_EVERY_RUN)
    set_property(TEST ${test} APPEND PROPERTY LABELS repeat)
  endif()
endfunction()
