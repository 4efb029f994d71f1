# Sourced by pack.sh and first.sh: what the archive has.
operation_tests=(activation attention attention_merge dropout elementwise embedding gemm head_loss layernorm loss_parts norm
  optimizer rope swiglu)
programs=(gw-info gpu_kernels gpu_nccl gpu_steps train_parity_test attention_gpu_test fp8_test "${operation_tests[@]/%/_test}")
bench_programs=(train train_rank) # where the build has the benchmarks
