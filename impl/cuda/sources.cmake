# The sources of the module for CUDA. impl/cuda compiles them with nvcc, tests/gpu_emulation with the host
# compiler for the software GPU.
set(kernels activation adafactor adamw8bit attention attention_backward attention_backward_tensor_core attention_tensor_core elementwise embedding fp8 head_loss layernorm loss_parts norm optimizer random reductions rope swiglu)
list(TRANSFORM kernels REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/impl/ops/cuda/\\1.cu" OUTPUT_VARIABLE GANGWAY_CUDA_KERNELS)
set(GANGWAY_CUDA_SOURCES cuda/module.cpp
    device/cuda/calls.cpp device/cuda/cuda_device.cpp device/cuda/cuda_stream.cpp device/cuda/memory.cpp device/cuda/segments.cpp
    device/cuda/watches.cpp
    gang/nccl/aborts.cpp gang/nccl/api.cpp gang/nccl/control_gather.cpp gang/nccl/event_work.cpp gang/nccl/greeting.cpp gang/nccl/nccl_engine.cpp gang/nccl/one_rank_engine.cpp gang/nccl/records.cpp
    gang/nccl/registered_memory.cpp gang/nccl/registrations.cpp gang/nccl/settings.cpp gang/nccl/sums.cpp
    ops/cuda/cudnn/attention_graph.cpp ops/cuda/attention_paths.cpp ops/cuda/cuda_ops.cpp ops/cuda/gemm.cpp ops/cuda/product_algorithms.cpp)
list(TRANSFORM GANGWAY_CUDA_SOURCES PREPEND "${PROJECT_SOURCE_DIR}/impl/")
