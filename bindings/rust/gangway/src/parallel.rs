use crate::element::DType;
use crate::options::{open_enum, options, with_rules};

open_enum! {
    Strategy {
        /// Unshard per use.
        FullShard = GW_FULL_SHARD,
        /// Keep after forward.
        ShardGradOp = GW_SHARD_GRAD_OP,
        /// Plain data parallel.
        NoShard = GW_NO_SHARD,
    }
}

open_enum! {
    Recompute {
        None = GW_RECOMPUTE_NONE,
        Full = GW_RECOMPUTE_FULL,
        /// Keeps linear outputs and attention; makes norm and SwiGLU outputs again.
        Selective = GW_RECOMPUTE_SELECTIVE,
        /// Each `recompute_every`-th block.
        Every = GW_RECOMPUTE_EVERY,
        /// `recompute_ratio` of the blocks.
        Ratio = GW_RECOMPUTE_RATIO,
    }
}

options! {
    /// The compute dtype of parameters whose whole name matches; the last match wins.
    DTypeRule = gw_dtype_rule, gw_dtype_rule_init {
        dtype: DType,
    } with {
        pattern: String = String::new(),
    }
}

options! {
    ShardOptions = gw_shard_options, gw_shard_options_init {
        strategy: Strategy,
        /// -1: the strategy's; 0 or 1.
        reshard_after_forward: i32,
        /// Compute dtype; NONE: the master's.
        param_dtype: DType,
        /// Of gradients on the way; NONE: f32 (f64 for f64).
        reduce_dtype: DType,
        /// Of the unit's outputs; NONE: as computed.
        output_dtype: DType,
        cast_forward_inputs: bool,
        cpu_offload: bool,
        prefetch_forward: i32,
        prefetch_backward: i32,
        /// -1: the strategy's; 0: reduce each microbatch; 1: once.
        accumulate_unsharded: i32,
        /// With `Strategy::NoShard`.
        bucket_cap_mb: f64,
    } with {
        dtype_rules: Vec<DTypeRule> = Vec::new(),
    }
}

options! {
    ParallelOptions = gw_parallel_options, gw_parallel_options_init {
        strategy: Strategy,
        /// -1: the strategy's; 0 or 1.
        reshard_after_forward: i32,
        /// Compute dtype; NONE: the master's.
        param_dtype: DType,
        /// Of gradients on the way; NONE: f32 (f64 for f64).
        reduce_dtype: DType,
        /// Of the units' outputs; NONE: as computed.
        output_dtype: DType,
        cast_forward_inputs: bool,
        cpu_offload: bool,
        prefetch_forward: i32,
        prefetch_backward: i32,
        /// F32, F64 or NONE (F32).
        master_dtype: DType,
        /// -1: the strategy's; 0: reduce each microbatch; 1: once.
        accumulate_unsharded: i32,
        recompute: Recompute,
        recompute_every: i32,
        recompute_ratio: f64,
        bucket_cap_mb: f64,
        /// Of the first values.
        seed: u64,
    } with {
        dtype_rules: Vec<DTypeRule> = Vec::new(),
    }
}

with_rules! {
    ShardOptions.dtype_rules => gw_shard_options;
    ParallelOptions.dtype_rules => gw_parallel_options;
}
