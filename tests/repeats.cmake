# What runs always, and what only with GANGWAY_TEST_ALL=1, as .ci/full does. CI has half an hour; a fact that
# costs more than its share there, or that another device has shown, runs in .ci/full.
#
# Suites that run a second time, on the deferred device (NAME.deferred) or on the software GPU (NAME.cuda). A
# row names a fact that only this device can show; the repeat runs always. Every other repeat has the label
# "repeat": it shows again what the suite has shown on the CPU, and runs with GANGWAY_TEST_ALL=1 alone, as
# .ci/full does.
set(GANGWAY_REPEATS_IN_EVERY_RUN
  # the module's kernels compute the formulas
  attention_test.cuda attention_merge_test.cuda elementwise_test.cuda embedding_test.cuda gemm_test.cuda head_loss_test.cuda
  loss_parts_test.cuda norm_test.cuda optimizer_test.cuda rope_test.cuda swiglu_test.cuda
  # layers that are one product on a GPU
  joined_linears_test.cuda
  # an operation reads what an earlier one wrote, though its stream runs late
  elementwise_test.deferred
  # layers, and their frames, order their work by streams and events alone
  nn_test.deferred
  # a ring reads keys and values that have arrived; stages read messages that have arrived
  context_test.deferred manual_pipeline_test.deferred
  # a step's host waits only where impl/README.md says; what is offloaded comes back in time
  train_step_test.deferred train_offload_test.deferred train_activation_offload_test.deferred
  # steps over NCCL, its groups, and copies between a GPU and the host
  train_context_test.cuda train_pipeline_test.cuda
  train_tensor_test.cuda
  # the C layer hands over what a call's stream keeps, and orders a caller's stream
  capi_streams_test.cuda capi_gang_collectives_test.cuda)

# Under the thread sanitizer (a leg of .ci/run) the layers run that have threads or share memory: base, device,
# data, gang, mesh, parallel/fsdp, train, checkpoint/run, and of the C layer works in flight, callbacks, handles that
# threads release, and what reads ahead; one operation of those that threads share. What shares in the same way has the
# label tsan_all and runs there with GANGWAY_TEST_ALL=1: the other operations, the software GPU and the module over
# it, layers, what else wraps modules, and the C layer's other calls, all of which go through these gangs and gates.

# slow_under_thread(TEST FILTER): those of the program's tests that the filter names share as its others do,
# and take too long under the thread sanitizer; they run there with GANGWAY_TEST_ALL=1 alone.
function(slow_under_thread test filter)
  if(GANGWAY_SANITIZE STREQUAL "thread" AND NOT GANGWAY_TEST_ALL)
    only(${test} -${filter})
  endif()
endfunction()

# label_repeat(TEST): gives it the label "repeat" unless a row above names it.
function(label_repeat test)
  if(NOT test IN_LIST GANGWAY_REPEATS_IN_EVERY_RUN)
    set_property(TEST ${test} APPEND PROPERTY LABELS repeat)
  endif()
endfunction()

# rest_in_full(TEST FILTER): those of the program's tests that the filter names run in an entry of their own,
# TEST.rest, which has the label "repeat"; TEST runs the others.
function(rest_in_full test filter)
  if(GANGWAY_SANITIZE STREQUAL "thread")
    slow_under_thread(${test} ${filter})
    return()  # which has a list of its own
  endif()
  string(REGEX REPLACE "\\.(cuda|deferred)$" "" program ${test})
  get_property(environment TEST ${test} PROPERTY ENVIRONMENT)
  get_property(timeout TEST ${test} PROPERTY TIMEOUT)
  get_property(labels TEST ${test} PROPERTY LABELS)
  set(others ${environment})
  list(FILTER others EXCLUDE REGEX "^GTEST_OUTPUT=")
  add_test(NAME ${test}.rest COMMAND ${program})
  set_tests_properties(${test}.rest PROPERTIES LABELS "${labels};repeat" TIMEOUT ${timeout}
    ENVIRONMENT "${others};GTEST_OUTPUT=${results}/${test}.rest.xml;GTEST_FILTER=${filter}")
  set_property(TEST ${test} PROPERTY ENVIRONMENT "${environment};GTEST_FILTER=-${filter}")
endfunction()

# kills(TEST...): they kill ranks at moments that are others in each run, so that a pass proves little of the next one
# (passes.py, failed.py). What has "kill" or "storm" in its name needs no label.
function(kills)
  foreach(test ${ARGN})
    set_property(TEST ${test} APPEND PROPERTY LABELS kills)
  endforeach()
endfunction()

# in_full(TEST...): each costs CI more than its share, and runs with GANGWAY_TEST_ALL=1 alone.
function(in_full)
  foreach(test ${ARGN})
    set_property(TEST ${test} APPEND PROPERTY LABELS repeat)
  endforeach()
endfunction()
