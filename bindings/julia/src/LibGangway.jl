# Made by gen/generate.py from the public headers: do not edit.
module LibGangway

using Libdl

const gw_status = Int32
const gw_dtype = Int32
const gw_device_type = Int32
const gw_reduce = Int32
const gw_op = Int32
const gw_movement_kind = Int32
const gw_action_kind = Int32
const gw_init_kind = Int32
const gw_part = Int32
const gw_activation = Int32
const gw_qk_norm = Int32
const gw_block_norms = Int32
const gw_rope_scaling = Int32
const gw_phase = Int32
const gw_fp8_scaling = Int32
const gw_strategy = Int32
const gw_recompute_kind = Int32
const gw_context_method = Int32
const gw_stage_split = Int32
const gw_style = Int32
const gw_placement = Int32
const gw_schedule = Int32
const gw_skip_reason = Int32
const gw_packing = Int32

const GW_STATUS_NONE = Int32(-1)
const GW_OK = Int32(0)
const GW_E_INVALID_ARGUMENT = Int32(1)
const GW_E_NOT_SUPPORTED = Int32(2)
const GW_E_INVALID_STATE = Int32(3)
const GW_E_GANG = Int32(4)
const GW_E_PEER_LOST = Int32(5)
const GW_E_TIMEOUT = Int32(6)
const GW_E_MISMATCH = Int32(7)
const GW_E_ABORTED = Int32(8)
const GW_E_NOT_READY = Int32(9)
const GW_E_NOT_FOUND = Int32(10)
const GW_E_FORKED = Int32(11)
const GW_E_CALLER = Int32(12)
const GW_E_OUT_OF_MEMORY = Int32(13)
const GW_E_IO = Int32(14)
const GW_E_CORRUPT = Int32(15)
const GW_E_INTERNAL = Int32(16)
const GW_E_BUSY = Int32(17)

const GW_DTYPE_INVALID = Int32(-1)
const GW_DTYPE_NONE = Int32(0)
const GW_I8 = Int32(67584)
const GW_I16 = Int32(69632)
const GW_I32 = Int32(73728)
const GW_I64 = Int32(81920)
const GW_U8 = Int32(67585)
const GW_U16 = Int32(69633)
const GW_U32 = Int32(73729)
const GW_U64 = Int32(81921)
const GW_F16 = Int32(69634)
const GW_F32 = Int32(73730)
const GW_F64 = Int32(81922)
const GW_BF16 = Int32(69636)
const GW_C64 = Int32(81925)
const GW_C128 = Int32(98309)
const GW_BOOL = Int32(67590)
const GW_F8_E4M3 = Int32(67594)
const GW_F8_E5M2 = Int32(67596)

const GW_DEVICE_INVALID = Int32(-1)
const GW_DEVICE_CPU = Int32(1)
const GW_DEVICE_CUDA = Int32(2)

const GW_REDUCE_INVALID = Int32(-1)
const GW_REDUCE_NONE = Int32(0)
const GW_SUM = Int32(1)
const GW_MEAN = Int32(2)
const GW_PRODUCT = Int32(3)
const GW_MIN = Int32(4)
const GW_MAX = Int32(5)

const GW_OP_INVALID = Int32(-1)
const GW_BARRIER = Int32(0)
const GW_ALL_REDUCE = Int32(1)
const GW_ALL_GATHER = Int32(2)
const GW_REDUCE_SCATTER = Int32(3)
const GW_BROADCAST = Int32(4)
const GW_REDUCE = Int32(5)
const GW_GATHER = Int32(6)
const GW_SCATTER = Int32(7)
const GW_ALL_TO_ALL = Int32(8)
const GW_SEND = Int32(9)
const GW_RECV = Int32(10)

const GW_MOVEMENT_INVALID = Int32(-1)
const GW_MOVEMENT_ALL_GATHER = Int32(0)
const GW_MOVEMENT_REDUCE_SCATTER = Int32(1)
const GW_MOVEMENT_ALL_SUM_REDUCE = Int32(2)
const GW_MOVEMENT_BROADCAST = Int32(3)
const GW_MOVEMENT_SUM_REDUCE = Int32(4)
const GW_MOVEMENT_REPARTITION = Int32(5)

const GW_ACTION_INVALID = Int32(-1)
const GW_ACTION_END = Int32(0)
const GW_ACTION_FORWARD = Int32(1)
const GW_ACTION_BACKWARD = Int32(2)
const GW_ACTION_INPUT_GRADIENT = Int32(3)
const GW_ACTION_WEIGHT_GRADIENT = Int32(4)
const GW_ACTION_UNSHARD = Int32(5)
const GW_ACTION_RESHARD = Int32(6)
const GW_ACTION_REDUCE_GRAD = Int32(7)

const GW_INIT_INVALID = Int32(-1)
const GW_INIT_NORMAL = Int32(0)
const GW_INIT_ZEROS = Int32(1)
const GW_INIT_ONES = Int32(2)
const GW_INIT_FILL = Int32(3)

const GW_PART_INVALID = Int32(-1)
const GW_PART_VALUE = Int32(0)
const GW_PART_GRADIENT = Int32(1)
const GW_PART_FULL_VALUE = Int32(2)
const GW_PART_FULL_GRADIENT = Int32(3)

const GW_ACTIVATION_INVALID = Int32(-1)
const GW_ACTIVATION_SILU = Int32(0)
const GW_ACTIVATION_GELU_TANH = Int32(1)
const GW_ACTIVATION_GELU = Int32(2)
const GW_ACTIVATION_RELU = Int32(3)
const GW_ACTIVATION_TANH = Int32(4)

const GW_QK_NORM_INVALID = Int32(-1)
const GW_QK_NORM_NONE = Int32(0)
const GW_QK_NORM_HEAD = Int32(1)
const GW_QK_NORM_WIDTH = Int32(2)

const GW_BLOCK_NORMS_INVALID = Int32(-1)
const GW_BLOCK_NORMS_BEFORE = Int32(0)
const GW_BLOCK_NORMS_AFTER = Int32(1)
const GW_BLOCK_NORMS_BOTH = Int32(2)

const GW_ROPE_SCALING_INVALID = Int32(-1)
const GW_ROPE_SCALING_LLAMA3 = Int32(0)
const GW_ROPE_SCALING_LINEAR = Int32(1)
const GW_ROPE_SCALING_YARN = Int32(2)
const GW_ROPE_SCALING_LONGROPE = Int32(3)

const GW_PHASE_INVALID = Int32(-1)
const GW_PHASE_SHAPES = Int32(0)
const GW_PHASE_FORWARD = Int32(1)
const GW_PHASE_BACKWARD_INPUT = Int32(2)
const GW_PHASE_BACKWARD_WEIGHT = Int32(3)

const GW_FP8_SCALING_INVALID = Int32(-1)
const GW_FP8_TENSOR = Int32(0)
const GW_FP8_DELAYED = Int32(1)
const GW_FP8_ROW = Int32(2)

const GW_STRATEGY_INVALID = Int32(-1)
const GW_FULL_SHARD = Int32(0)
const GW_SHARD_GRAD_OP = Int32(1)
const GW_NO_SHARD = Int32(2)

const GW_RECOMPUTE_INVALID = Int32(-1)
const GW_RECOMPUTE_NONE = Int32(0)
const GW_RECOMPUTE_FULL = Int32(1)
const GW_RECOMPUTE_SELECTIVE = Int32(2)
const GW_RECOMPUTE_EVERY = Int32(3)
const GW_RECOMPUTE_RATIO = Int32(4)

const GW_CONTEXT_INVALID = Int32(-1)
const GW_CONTEXT_RING = Int32(0)
const GW_CONTEXT_ALL_GATHER = Int32(1)
const GW_CONTEXT_ALL_TO_ALL = Int32(2)

const GW_STAGE_SPLIT_INVALID = Int32(-1)
const GW_STAGE_SPLIT_EVEN = Int32(0)
const GW_STAGE_SPLIT_BY_COST = Int32(1)
const GW_STAGE_SPLIT_GIVEN = Int32(2)

const GW_STYLE_INVALID = Int32(-1)
const GW_STYLE_REPLICATE = Int32(0)
const GW_STYLE_COLWISE = Int32(1)
const GW_STYLE_ROWWISE = Int32(2)
const GW_STYLE_SEQUENCE_PARALLEL = Int32(3)
const GW_STYLE_PREPARE_INPUT = Int32(4)
const GW_STYLE_PREPARE_OUTPUT = Int32(5)
const GW_STYLE_HEADWISE = Int32(6)

const GW_PLACEMENT_INVALID = Int32(-1)
const GW_PLACEMENT_DEFAULT = Int32(0)
const GW_PLACEMENT_REPLICATE = Int32(1)
const GW_PLACEMENT_VARYING = Int32(2)
const GW_PLACEMENT_PARTIAL = Int32(3)
const GW_PLACEMENT_SHARD = Int32(4)

const GW_SCHEDULE_INVALID = Int32(-1)
const GW_CONSTANT = Int32(0)
const GW_LINEAR = Int32(1)
const GW_COSINE = Int32(2)
const GW_WSD = Int32(3)
const GW_WSD_SQRT = Int32(4)
const GW_INVERSE_SQRT = Int32(5)

const GW_SKIP_INVALID = Int32(-1)
const GW_SKIP_NONE = Int32(0)
const GW_SKIP_NO_WEIGHT = Int32(1)
const GW_SKIP_NON_FINITE = Int32(2)

const GW_PACKING_INVALID = Int32(-1)
const GW_PACKING_STREAM = Int32(0)
const GW_PACKING_DOCUMENTS = Int32(1)

struct gw_error end
struct gw_bytes end
struct gw_tensor end
struct DLManagedTensorVersioned end
struct gw_store end
struct gw_gang end
struct gw_work end
struct gw_gangs end
struct gw_partition end
struct gw_movement end
struct gw_pipeline end
struct gw_module end
struct gw_parameter end
struct gw_optimizer end
struct gw_frame end
struct gw_checkpoints end
struct gw_shard_group end
struct gw_dataset end
struct gw_metrics end

struct gw_ext
    kind::Int32
    reserved::Int32
    next::Ptr{gw_ext}
end

struct gw_error_info
    struct_size::Csize_t
    next::Ptr{gw_ext}
    code::gw_status
    rank::Int32
    peer::Int32
    system_error::Int32
    message::Ptr{Cchar}
    gang::Ptr{Cchar}
    op::Ptr{Cchar}
    path::Ptr{Cchar}
end

struct gw_memory_info
    struct_size::Csize_t
    next::Ptr{gw_ext}
    total::UInt64
    available::UInt64
    used::UInt64
end

struct gw_allocator
    struct_size::Csize_t
    next::Ptr{gw_ext}
    allocate::Ptr{Cvoid}
    deallocate::Ptr{Cvoid}
    user::Ptr{Cvoid}
    free_user::Ptr{Cvoid}
end

struct gw_view
    data::Ptr{Cvoid}
    device_type::gw_device_type
    device_id::Int32
    ndim::Int32
    dtype::gw_dtype
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    byte_offset::UInt64
end

struct gw_store_callbacks
    struct_size::Csize_t
    next::Ptr{gw_ext}
    put::Ptr{Cvoid}
    get::Ptr{Cvoid}
    remove::Ptr{Cvoid}
    user::Ptr{Cvoid}
    free_user::Ptr{Cvoid}
end

struct gw_gang_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    device::Ptr{Cchar}
    engine::Ptr{Cchar}
    name::Ptr{Cchar}
    timeout_ms::Int64
    liveness_ms::Int64
    arena_bytes::UInt64
    memory_limit::UInt64
    high_priority::Int32
    expected_size::Int32
    threads::Int32
    rank::Int32
    size::Int32
    reserved::Int32
    store::Ptr{gw_store}
    id::Ptr{Cvoid}
    id_size::Csize_t
    all_gather::Ptr{Cvoid}
    user::Ptr{Cvoid}
    free_user::Ptr{Cvoid}
end

struct gw_gang_traffic
    struct_size::Csize_t
    next::Ptr{gw_ext}
    calls::UInt64
    bytes_moved::UInt64
    bytes_staged::UInt64
end

struct gw_collective
    struct_size::Csize_t
    next::Ptr{gw_ext}
    input::Ptr{Cvoid}
    output::Ptr{Cvoid}
    count::Csize_t
    counts::Ptr{Csize_t}
    op::gw_op
    dtype::gw_dtype
    reduce::gw_reduce
    peer::Int32
    accumulate::Int32
    reserved::Int32
end

struct gw_mesh_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    pp::Int32
    dp_replicate::Int32
    dp_shard::Int32
    cp::Int32
    tp::Int32
    reserved::Int32
end

struct gw_gang_places
    struct_size::Csize_t
    next::Ptr{gw_ext}
    root::Ptr{gw_gang}
    dp::Ptr{gw_gang}
    rdp::Ptr{gw_gang}
    sdp::Ptr{gw_gang}
    tp::Ptr{gw_gang}
    pp::Ptr{gw_gang}
    cp::Ptr{gw_gang}
end

struct gw_partition_info
    struct_size::Csize_t
    next::Ptr{gw_ext}
    active::Int32
    rank::Int32
    size::Int32
    ndim::Int32
    shape::NTuple{8,Int64}
    index::NTuple{8,Int64}
end

struct gw_movement_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    axes::Ptr{Int32}
    axis_count::Csize_t
    axes_keep::Ptr{Int32}
    keep_count::Csize_t
    backward_scale::Cdouble
    preserve_batch::Int32
    transpose_source::Int32
    transpose_target::Int32
    reserved::Int32
end

struct gw_pipeline_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    schedule::Ptr{Cchar}
    schedule_csv::Ptr{Cchar}
    microbatches::Int32
    stages_per_rank::Int32
    shard_actions::Int32
    reserved::Int32
end

struct gw_pipeline_info
    struct_size::Csize_t
    next::Ptr{gw_ext}
    stages::Int32
    microbatches::Int32
    local_stages::Int32
    rank::Int32
end

struct gw_pipeline_action
    struct_size::Csize_t
    next::Ptr{gw_ext}
    kind::gw_action_kind
    stage::Int32
    microbatch::Int32
    first_stage::Int32
    last_stage::Int32
    training::Int32
    inputs::Ptr{gw_view}
    input_count::Csize_t
end

struct gw_memory_use
    struct_size::Csize_t
    next::Ptr{gw_ext}
    master::UInt64
    region_rows::UInt64
    gradient_shards::UInt64
    gathered::UInt64
    full_gradients::UInt64
    activations::UInt64
    gradients::UInt64
    temporaries::UInt64
    copies::UInt64
    optimizer::UInt64
    host::UInt64
end

struct gw_init_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    kind::gw_init_kind
    reserved::Int32
    deviation::Cdouble
    fill::Ptr{Cvoid}
    user::Ptr{Cvoid}
    free_user::Ptr{Cvoid}
end

struct gw_parameter_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    name::Ptr{Cchar}
    dims::NTuple{8,Int64}
    ndim::Int32
    dtype::gw_dtype
    frozen::Int32
    is_buffer::Int32
    initializer::Ptr{gw_init_options}
    aliases::Ptr{Ptr{Cchar}}
    alias_count::Csize_t
end

struct gw_parameter_info
    struct_size::Csize_t
    next::Ptr{gw_ext}
    name::Ptr{Cchar}
    layout::Ptr{Cchar}
    dims::NTuple{8,Int64}
    ndim::Int32
    dtype::gw_dtype
    is_buffer::Int32
    trainable::Int32
    first_row::Int64
    last_row::Int64
end

struct gw_decoder_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    family::Ptr{Cchar}
    vocab::Int64
    dim::Int64
    layers::Int64
    heads::Int64
    kv_heads::Int64
    head_dim::Int64
    ffn::Int64
    max_positions::Int64
    window::Int64
    window_layers::Ptr{Cchar}
    eps::Cdouble
    rope_theta::Cdouble
    rope_factor::Cdouble
    rope_low_frequency_factor::Cdouble
    rope_high_frequency_factor::Cdouble
    rope_original_positions::Int64
    initializer_range::Cdouble
    qkv_bias::Int32
    out_bias::Int32
    mlp_bias::Int32
    tied::Int32
    qk_norm::gw_qk_norm
    norms::gw_block_norms
    activation::gw_activation
    sinks::Int32
    norm_offset::Cdouble
    embedding_scale::Cdouble
    score_scale::Cdouble
    score_cap::Cdouble
    logit_cap::Cdouble
    window_rope_theta::Cdouble
    rope_scaling::gw_rope_scaling
    rope_truncate::Int32
    rope_partial::Cdouble
    rope_attention_factor::Cdouble
    rope_beta_fast::Cdouble
    rope_beta_slow::Cdouble
    rope_mscale::Cdouble
    rope_mscale_all_dim::Cdouble
    rope_short_factors::Ptr{Cchar}
    rope_long_factors::Ptr{Cchar}
    layer_norm::Int32
    gated_mlp::Int32
    learned_positions::Int32
    reserved::Int32
    embedding_dropout::Cdouble
    residual_dropout::Cdouble
    attention_dropout::Cdouble
end

struct gw_attention_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    dim::Int64
    heads::Int64
    kv_heads::Int64
    head_dim::Int64
    rope_theta::Cdouble
    initializer_range::Cdouble
    eps::Cdouble
    qkv_bias::Int32
    out_bias::Int32
    causal::Int32
    qk_norm::gw_qk_norm
    window::Int64
    norm_offset::Cdouble
    score_scale::Cdouble
    score_cap::Cdouble
    sinks::Int32
    reserved::Int32
end

struct gw_feed_forward_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    dim::Int64
    ffn::Int64
    initializer_range::Cdouble
    activation::gw_activation
    bias::Int32
    plain::Int32
    reserved::Int32
end

struct gw_call
    struct_size::Csize_t
    next::Ptr{gw_ext}
    phase::gw_phase
    training::Int32
    recomputing::Int32
    microbatch::Int32
    input_count::Int32
    output_count::Int32
    parameter_count::Int32
    reserved::Int32
    inputs::Ptr{gw_view}
    outputs::Ptr{gw_view}
    output_grads::Ptr{gw_view}
    input_grads::Ptr{gw_view}
    parameters::Ptr{gw_view}
    parameter_grads::Ptr{gw_view}
    state::Ptr{Ptr{Cvoid}}
    loss_scale::Cdouble
    seed::UInt64
    step::Int64
    gangs::Ptr{gw_gangs}
    stream::Ptr{Cvoid}
    context::Ptr{Cvoid}
end

struct gw_custom_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    name::Ptr{Cchar}
    shapes::Ptr{Cvoid}
    forward::Ptr{Cvoid}
    backward_input::Ptr{Cvoid}
    backward_weight::Ptr{Cvoid}
    accepts_dtype::Ptr{Cvoid}
    user::Ptr{Cvoid}
    free_user::Ptr{Cvoid}
    free_state::Ptr{Cvoid}
    input_count::Int32
    output_count::Int32
    parameters::Ptr{gw_parameter_options}
    parameter_count::Csize_t
    children::Ptr{Ptr{gw_module}}
    child_names::Ptr{Ptr{Cchar}}
    child_count::Csize_t
    parallel_plan::Ptr{Cchar}
    parameter_groups::Ptr{Cchar}
end

struct gw_frame_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    loss_scale::Cdouble
    step::Int64
    microbatch::Int32
    sequence_parts::Int32
end

struct gw_save_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    dtype::gw_dtype
    reserved::Int32
    max_file_bytes::Int64
end

struct gw_load_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    ignore_extra::Int32
    ignore_config::Int32
end

struct gw_fp8_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    patterns::Ptr{Cchar}
    scaling::gw_fp8_scaling
    history::Int32
end

struct gw_lora_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    patterns::Ptr{Cchar}
    rank::Int64
    alpha::Cdouble
    dropout::Cdouble
    seed::UInt64
    rank_stabilized::Int32
    reserved::Int32
end

struct gw_checkpoints_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    every::Int64
    max_file_bytes::Int64
    timeout_ms::Int64
    job::Ptr{Cchar}
    keep::Int32
    synchronous::Int32
    model_dtype::gw_dtype
    reserved::Int32
end

struct gw_checkpoint_part
    struct_size::Csize_t
    next::Ptr{gw_ext}
    name::Ptr{Cchar}
    model::Ptr{gw_module}
    optimizer::Ptr{gw_optimizer}
    carry_from::Ptr{Cchar}
end

struct gw_checkpoint_text
    struct_size::Csize_t
    next::Ptr{gw_ext}
    name::Ptr{Cchar}
    text::Ptr{Cchar}
end

struct gw_checkpoint_state
    struct_size::Csize_t
    next::Ptr{gw_ext}
    step::Int64
    tokens::Int64
    texts::Ptr{gw_checkpoint_text}
    text_count::Csize_t
    user::Ptr{Cvoid}
    user_size::Csize_t
end

struct gw_restore_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    step::Int64
    no_verify::Int32
    partial::Int32
end

struct gw_dtype_rule
    struct_size::Csize_t
    next::Ptr{gw_ext}
    pattern::Ptr{Cchar}
    dtype::gw_dtype
    reserved::Int32
end

struct gw_shard_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    strategy::gw_strategy
    reshard_after_forward::Int32
    param_dtype::gw_dtype
    reduce_dtype::gw_dtype
    output_dtype::gw_dtype
    cast_forward_inputs::Int32
    cpu_offload::Int32
    prefetch_forward::Int32
    prefetch_backward::Int32
    accumulate_unsharded::Int32
    bucket_cap_mb::Cdouble
    rules::Ptr{gw_dtype_rule}
    rule_count::Csize_t
end

struct gw_plan_row
    struct_size::Csize_t
    next::Ptr{gw_ext}
    pattern::Ptr{Cchar}
    style::gw_style
    input::gw_placement
    input_dim::Int32
    output::gw_placement
    output_dim::Int32
    reserved::Int32
end

struct gw_tensor_parallel_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    plan::Ptr{Cchar}
    rows::Ptr{gw_plan_row}
    row_count::Csize_t
    sequence_parallel::Int32
    loss_parallel::Int32
    overlap_chunks::Int32
    reserved::Int32
end

struct gw_parallel_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    shard::Ptr{gw_shard_options}
    master_dtype::gw_dtype
    recompute::gw_recompute_kind
    recompute_ratio::Cdouble
    recompute_every::Int32
    context_method::gw_context_method
    seed::UInt64
    tensor_parallel::Ptr{gw_tensor_parallel_options}
    pipeline::Ptr{gw_pipeline_options}
    first_layers::Ptr{Int64}
    first_layer_count::Csize_t
    stage_split::gw_stage_split
    activation_offload::Int32
end

struct gw_optimizer_rule
    struct_size::Csize_t
    next::Ptr{gw_ext}
    pattern::Ptr{Cchar}
    lr_scale::Cdouble
    weight_decay::Cdouble
    frozen::Int32
    adamw::Int32
end

struct gw_adafactor_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    lr::Cdouble
    beta2_decay::Cdouble
    eps::Cdouble
    clip_threshold::Cdouble
    weight_decay::Cdouble
    schedule::gw_schedule
    reserved::Int32
    ema_decay::Cdouble
    warmup_steps::Int64
    total_steps::Int64
    last_lr_ratio::Cdouble
    decay_steps::Int64
    rules::Ptr{gw_optimizer_rule}
    rule_count::Csize_t
    loss_scale::Cdouble
    initial_loss_scale::Cdouble
    loss_scale_interval::Int64
end

struct gw_adamw_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    lr::Cdouble
    beta1::Cdouble
    beta2::Cdouble
    eps::Cdouble
    weight_decay::Cdouble
    schedule::gw_schedule
    moment_dtype::gw_dtype
    ema_decay::Cdouble
    warmup_steps::Int64
    total_steps::Int64
    last_lr_ratio::Cdouble
    decay_steps::Int64
    rules::Ptr{gw_optimizer_rule}
    rule_count::Csize_t
    loss_scale::Cdouble
    initial_loss_scale::Cdouble
    loss_scale_interval::Int64
end

struct gw_adamw8bit_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    lr::Cdouble
    beta1::Cdouble
    beta2::Cdouble
    eps::Cdouble
    weight_decay::Cdouble
    schedule::gw_schedule
    reserved::Int32
    ema_decay::Cdouble
    warmup_steps::Int64
    total_steps::Int64
    last_lr_ratio::Cdouble
    decay_steps::Int64
    rules::Ptr{gw_optimizer_rule}
    rule_count::Csize_t
    loss_scale::Cdouble
    initial_loss_scale::Cdouble
    loss_scale_interval::Int64
end

struct gw_lion_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    lr::Cdouble
    beta1::Cdouble
    beta2::Cdouble
    weight_decay::Cdouble
    schedule::gw_schedule
    moment_dtype::gw_dtype
    ema_decay::Cdouble
    warmup_steps::Int64
    total_steps::Int64
    last_lr_ratio::Cdouble
    decay_steps::Int64
    rules::Ptr{gw_optimizer_rule}
    rule_count::Csize_t
    loss_scale::Cdouble
    initial_loss_scale::Cdouble
    loss_scale_interval::Int64
end

struct gw_muon_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    lr::Cdouble
    momentum::Cdouble
    ns_steps::Int64
    eps::Cdouble
    adamw_lr_scale::Cdouble
    beta1::Cdouble
    beta2::Cdouble
    adamw_eps::Cdouble
    weight_decay::Cdouble
    nesterov::Int32
    match_rms::Int32
    schedule::gw_schedule
    matrix_dtype::gw_dtype
    moment_dtype::gw_dtype
    reserved::Int32
    ema_decay::Cdouble
    warmup_steps::Int64
    total_steps::Int64
    last_lr_ratio::Cdouble
    decay_steps::Int64
    rules::Ptr{gw_optimizer_rule}
    rule_count::Csize_t
    loss_scale::Cdouble
    initial_loss_scale::Cdouble
    loss_scale_interval::Int64
end

struct gw_sgd_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    lr::Cdouble
    momentum::Cdouble
    weight_decay::Cdouble
    nesterov::Int32
    schedule::gw_schedule
    ema_decay::Cdouble
    warmup_steps::Int64
    total_steps::Int64
    last_lr_ratio::Cdouble
    decay_steps::Int64
    rules::Ptr{gw_optimizer_rule}
    rule_count::Csize_t
    loss_scale::Cdouble
    initial_loss_scale::Cdouble
    loss_scale_interval::Int64
end

struct gw_optimizer_call
    struct_size::Csize_t
    next::Ptr{gw_ext}
    name::Ptr{Cchar}
    value::Ptr{gw_view}
    gradient::Ptr{gw_view}
    states::Ptr{gw_view}
    state_count::Int32
    reserved::Int32
    lr::Cdouble
    weight_decay::Cdouble
    step::Int64
    stream::Ptr{Cvoid}
end

struct gw_custom_optimizer_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    name::Ptr{Cchar}
    states::Ptr{Ptr{Cchar}}
    state_count::Csize_t
    step::Ptr{Cvoid}
    user::Ptr{Cvoid}
    free_user::Ptr{Cvoid}
    lr::Cdouble
    weight_decay::Cdouble
    schedule::gw_schedule
    reserved::Int32
    ema_decay::Cdouble
    warmup_steps::Int64
    total_steps::Int64
    last_lr_ratio::Cdouble
    decay_steps::Int64
    rules::Ptr{gw_optimizer_rule}
    rule_count::Csize_t
    loss_scale::Cdouble
    initial_loss_scale::Cdouble
    loss_scale_interval::Int64
end

struct gw_batch
    struct_size::Csize_t
    next::Ptr{gw_ext}
    inputs::Ptr{gw_view}
    input_count::Csize_t
    targets::Ptr{gw_view}
    target_count::Csize_t
    weight::Int64
    shift_labels::Int32
    reserved::Int32
    documents::Ptr{gw_view}
    positions::Ptr{gw_view}
    token_weights::Ptr{gw_view}
end

struct gw_step_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    microbatches::Int32
    allow_non_finite::Int32
    max_grad_norm::Cdouble
    norm_type::Cdouble
    scale::Cdouble
    stop::Int32
    replay::Int32
    gradient_norms::Int32
    reserved::Int32
    label_smoothing::Cdouble
    z_loss::Cdouble
end

struct gw_step_result
    struct_size::Csize_t
    next::Ptr{gw_ext}
    loss::Cdouble
    grad_norm::Cdouble
    tokens_per_second::Cdouble
    seconds::Cdouble
    wait_seconds::Cdouble
    lr::Cdouble
    weight::Int64
    step::Int64
    skipped::Int32
    skip_reason::gw_skip_reason
    loss_scale::Cdouble
    tokens::Int64
    stop::Int32
    reserved::Int32
    weight_sum::Cdouble
end

struct gw_generate_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    token_count::Int64
    temperature::Cdouble
    top_k::Int64
    seed::UInt64
    top_p::Cdouble
    min_p::Cdouble
    repetition_penalty::Cdouble
    stop_tokens::Ptr{Int64}
    stop_count::Csize_t
    on_token::Ptr{Cvoid}
    user::Ptr{Cvoid}
end

struct gw_verify_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    parallel::Ptr{gw_parallel_options}
    tolerance::Cdouble
    microbatches::Int32
    reserved::Int32
end

struct gw_verify_result
    struct_size::Csize_t
    next::Ptr{gw_ext}
    loss::Cdouble
    mesh_loss::Cdouble
    grad_norm::Cdouble
    mesh_grad_norm::Cdouble
    parameters::Int64
    differing::Int64
    difference::Cdouble
end

struct gw_data_source
    struct_size::Csize_t
    next::Ptr{gw_ext}
    path::Ptr{Cchar}
    format::Ptr{Cchar}
    weight::Cdouble
end

struct gw_dataset_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    sources::Ptr{gw_data_source}
    source_count::Csize_t
    sequence::Int64
    seed::UInt64
    vocab_size::Int64
    document_end::Int64
    packing::gw_packing
    shuffle::Int32
    read_ahead::Int32
    reserved::Int32
end

struct gw_data_batch
    struct_size::Csize_t
    next::Ptr{gw_ext}
    batch::Ptr{gw_batch}
    tokens::Ptr{gw_view}
    labels::Ptr{gw_view}
    documents::Ptr{gw_view}
    first_row::Int64
    last_row::Int64
    rank_first_row::Int64
    rank_last_row::Int64
    label_count::Int64
    data_seconds::Cdouble
end

struct gw_metrics_row
    struct_size::Csize_t
    next::Ptr{gw_ext}
    step::Int64
    tokens::Int64
    samples::Int64
    loss::Cdouble
    validation_loss::Cdouble
    grad_norm::Cdouble
    lr::Cdouble
    loss_scale::Cdouble
    tokens_per_second::Cdouble
    mfu::Cdouble
    seconds::Cdouble
    data_seconds::Cdouble
    checkpoint_seconds::Cdouble
    evaluate_seconds::Cdouble
    wait_seconds::Cdouble
    slowest_rank::Int64
    slowest_rank_seconds::Cdouble
    memory::Int64
    memory_peak::Int64
    skipped::Int64
end

struct gw_metrics_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    json_lines::Ptr{Cchar}
    csv::Ptr{Cchar}
    svg::Ptr{Cchar}
    every::Int32
    reserved::Int32
    sequence::Int64
    peak_flops::Cdouble
    sink::Ptr{Cvoid}
    user::Ptr{Cvoid}
    free_user::Ptr{Cvoid}
end

struct gw_metrics_step
    struct_size::Csize_t
    next::Ptr{gw_ext}
    samples::Int64
    data_seconds::Cdouble
    checkpoint_seconds::Cdouble
end

struct gw_plan_options
    struct_size::Csize_t
    next::Ptr{gw_ext}
    decoder::Ptr{gw_decoder_options}
    mesh::Ptr{gw_mesh_options}
    parallel::Ptr{gw_parallel_options}
    ranks::Int32
    microbatches::Int32
    rows::Int64
    sequence::Int64
    moment_dtype::gw_dtype
    one_host::Int32
    lora::Ptr{gw_lora_options}
    fp8::Ptr{gw_fp8_options}
    optimizer::Ptr{Cchar}
    option_names::Ptr{Ptr{Cchar}}
    option_values::Ptr{Ptr{Cchar}}
    option_count::Csize_t
end

# (struct, bytes, ((field, offset), ...)) as the C compiler lays them out.
const LAYOUT = (
    (gw_ext, 16, ((:kind, 0), (:reserved, 4), (:next, 8),)),
    (gw_error_info, 64, ((:struct_size, 0), (:next, 8), (:code, 16), (:rank, 20), (:peer, 24), (:system_error, 28), (:message, 32), (:gang, 40), (:op, 48), (:path, 56),)),
    (gw_memory_info, 40, ((:struct_size, 0), (:next, 8), (:total, 16), (:available, 24), (:used, 32),)),
    (gw_allocator, 48, ((:struct_size, 0), (:next, 8), (:allocate, 16), (:deallocate, 24), (:user, 32), (:free_user, 40),)),
    (gw_view, 48, ((:data, 0), (:device_type, 8), (:device_id, 12), (:ndim, 16), (:dtype, 20), (:shape, 24), (:strides, 32), (:byte_offset, 40),)),
    (gw_store_callbacks, 56, ((:struct_size, 0), (:next, 8), (:put, 16), (:get, 24), (:remove, 32), (:user, 40), (:free_user, 48),)),
    (gw_gang_options, 144, ((:struct_size, 0), (:next, 8), (:device, 16), (:engine, 24), (:name, 32), (:timeout_ms, 40), (:liveness_ms, 48), (:arena_bytes, 56), (:memory_limit, 64), (:high_priority, 72), (:expected_size, 76), (:threads, 80), (:rank, 84), (:size, 88), (:reserved, 92), (:store, 96), (:id, 104), (:id_size, 112), (:all_gather, 120), (:user, 128), (:free_user, 136),)),
    (gw_gang_traffic, 40, ((:struct_size, 0), (:next, 8), (:calls, 16), (:bytes_moved, 24), (:bytes_staged, 32),)),
    (gw_collective, 72, ((:struct_size, 0), (:next, 8), (:input, 16), (:output, 24), (:count, 32), (:counts, 40), (:op, 48), (:dtype, 52), (:reduce, 56), (:peer, 60), (:accumulate, 64), (:reserved, 68),)),
    (gw_mesh_options, 40, ((:struct_size, 0), (:next, 8), (:pp, 16), (:dp_replicate, 20), (:dp_shard, 24), (:cp, 28), (:tp, 32), (:reserved, 36),)),
    (gw_gang_places, 72, ((:struct_size, 0), (:next, 8), (:root, 16), (:dp, 24), (:rdp, 32), (:sdp, 40), (:tp, 48), (:pp, 56), (:cp, 64),)),
    (gw_partition_info, 160, ((:struct_size, 0), (:next, 8), (:active, 16), (:rank, 20), (:size, 24), (:ndim, 28), (:shape, 32), (:index, 96),)),
    (gw_movement_options, 72, ((:struct_size, 0), (:next, 8), (:axes, 16), (:axis_count, 24), (:axes_keep, 32), (:keep_count, 40), (:backward_scale, 48), (:preserve_batch, 56), (:transpose_source, 60), (:transpose_target, 64), (:reserved, 68),)),
    (gw_pipeline_options, 48, ((:struct_size, 0), (:next, 8), (:schedule, 16), (:schedule_csv, 24), (:microbatches, 32), (:stages_per_rank, 36), (:shard_actions, 40), (:reserved, 44),)),
    (gw_pipeline_info, 32, ((:struct_size, 0), (:next, 8), (:stages, 16), (:microbatches, 20), (:local_stages, 24), (:rank, 28),)),
    (gw_pipeline_action, 56, ((:struct_size, 0), (:next, 8), (:kind, 16), (:stage, 20), (:microbatch, 24), (:first_stage, 28), (:last_stage, 32), (:training, 36), (:inputs, 40), (:input_count, 48),)),
    (gw_memory_use, 104, ((:struct_size, 0), (:next, 8), (:master, 16), (:region_rows, 24), (:gradient_shards, 32), (:gathered, 40), (:full_gradients, 48), (:activations, 56), (:gradients, 64), (:temporaries, 72), (:copies, 80), (:optimizer, 88), (:host, 96),)),
    (gw_init_options, 56, ((:struct_size, 0), (:next, 8), (:kind, 16), (:reserved, 20), (:deviation, 24), (:fill, 32), (:user, 40), (:free_user, 48),)),
    (gw_parameter_options, 128, ((:struct_size, 0), (:next, 8), (:name, 16), (:dims, 24), (:ndim, 88), (:dtype, 92), (:frozen, 96), (:is_buffer, 100), (:initializer, 104), (:aliases, 112), (:alias_count, 120),)),
    (gw_parameter_info, 128, ((:struct_size, 0), (:next, 8), (:name, 16), (:layout, 24), (:dims, 32), (:ndim, 96), (:dtype, 100), (:is_buffer, 104), (:trainable, 108), (:first_row, 112), (:last_row, 120),)),
    (gw_decoder_options, 352, ((:struct_size, 0), (:next, 8), (:family, 16), (:vocab, 24), (:dim, 32), (:layers, 40), (:heads, 48), (:kv_heads, 56), (:head_dim, 64), (:ffn, 72), (:max_positions, 80), (:window, 88), (:window_layers, 96), (:eps, 104), (:rope_theta, 112), (:rope_factor, 120), (:rope_low_frequency_factor, 128), (:rope_high_frequency_factor, 136), (:rope_original_positions, 144), (:initializer_range, 152), (:qkv_bias, 160), (:out_bias, 164), (:mlp_bias, 168), (:tied, 172), (:qk_norm, 176), (:norms, 180), (:activation, 184), (:sinks, 188), (:norm_offset, 192), (:embedding_scale, 200), (:score_scale, 208), (:score_cap, 216), (:logit_cap, 224), (:window_rope_theta, 232), (:rope_scaling, 240), (:rope_truncate, 244), (:rope_partial, 248), (:rope_attention_factor, 256), (:rope_beta_fast, 264), (:rope_beta_slow, 272), (:rope_mscale, 280), (:rope_mscale_all_dim, 288), (:rope_short_factors, 296), (:rope_long_factors, 304), (:layer_norm, 312), (:gated_mlp, 316), (:learned_positions, 320), (:reserved, 324), (:embedding_dropout, 328), (:residual_dropout, 336), (:attention_dropout, 344),)),
    (gw_attention_options, 128, ((:struct_size, 0), (:next, 8), (:dim, 16), (:heads, 24), (:kv_heads, 32), (:head_dim, 40), (:rope_theta, 48), (:initializer_range, 56), (:eps, 64), (:qkv_bias, 72), (:out_bias, 76), (:causal, 80), (:qk_norm, 84), (:window, 88), (:norm_offset, 96), (:score_scale, 104), (:score_cap, 112), (:sinks, 120), (:reserved, 124),)),
    (gw_feed_forward_options, 56, ((:struct_size, 0), (:next, 8), (:dim, 16), (:ffn, 24), (:initializer_range, 32), (:activation, 40), (:bias, 44), (:plain, 48), (:reserved, 52),)),
    (gw_call, 152, ((:struct_size, 0), (:next, 8), (:phase, 16), (:training, 20), (:recomputing, 24), (:microbatch, 28), (:input_count, 32), (:output_count, 36), (:parameter_count, 40), (:reserved, 44), (:inputs, 48), (:outputs, 56), (:output_grads, 64), (:input_grads, 72), (:parameters, 80), (:parameter_grads, 88), (:state, 96), (:loss_scale, 104), (:seed, 112), (:step, 120), (:gangs, 128), (:stream, 136), (:context, 144),)),
    (gw_custom_options, 152, ((:struct_size, 0), (:next, 8), (:name, 16), (:shapes, 24), (:forward, 32), (:backward_input, 40), (:backward_weight, 48), (:accepts_dtype, 56), (:user, 64), (:free_user, 72), (:free_state, 80), (:input_count, 88), (:output_count, 92), (:parameters, 96), (:parameter_count, 104), (:children, 112), (:child_names, 120), (:child_count, 128), (:parallel_plan, 136), (:parameter_groups, 144),)),
    (gw_frame_options, 40, ((:struct_size, 0), (:next, 8), (:loss_scale, 16), (:step, 24), (:microbatch, 32), (:sequence_parts, 36),)),
    (gw_save_options, 32, ((:struct_size, 0), (:next, 8), (:dtype, 16), (:reserved, 20), (:max_file_bytes, 24),)),
    (gw_load_options, 24, ((:struct_size, 0), (:next, 8), (:ignore_extra, 16), (:ignore_config, 20),)),
    (gw_fp8_options, 32, ((:struct_size, 0), (:next, 8), (:patterns, 16), (:scaling, 24), (:history, 28),)),
    (gw_lora_options, 64, ((:struct_size, 0), (:next, 8), (:patterns, 16), (:rank, 24), (:alpha, 32), (:dropout, 40), (:seed, 48), (:rank_stabilized, 56), (:reserved, 60),)),
    (gw_checkpoints_options, 64, ((:struct_size, 0), (:next, 8), (:every, 16), (:max_file_bytes, 24), (:timeout_ms, 32), (:job, 40), (:keep, 48), (:synchronous, 52), (:model_dtype, 56), (:reserved, 60),)),
    (gw_checkpoint_part, 48, ((:struct_size, 0), (:next, 8), (:name, 16), (:model, 24), (:optimizer, 32), (:carry_from, 40),)),
    (gw_checkpoint_text, 32, ((:struct_size, 0), (:next, 8), (:name, 16), (:text, 24),)),
    (gw_checkpoint_state, 64, ((:struct_size, 0), (:next, 8), (:step, 16), (:tokens, 24), (:texts, 32), (:text_count, 40), (:user, 48), (:user_size, 56),)),
    (gw_restore_options, 32, ((:struct_size, 0), (:next, 8), (:step, 16), (:no_verify, 24), (:partial, 28),)),
    (gw_dtype_rule, 32, ((:struct_size, 0), (:next, 8), (:pattern, 16), (:dtype, 24), (:reserved, 28),)),
    (gw_shard_options, 80, ((:struct_size, 0), (:next, 8), (:strategy, 16), (:reshard_after_forward, 20), (:param_dtype, 24), (:reduce_dtype, 28), (:output_dtype, 32), (:cast_forward_inputs, 36), (:cpu_offload, 40), (:prefetch_forward, 44), (:prefetch_backward, 48), (:accumulate_unsharded, 52), (:bucket_cap_mb, 56), (:rules, 64), (:rule_count, 72),)),
    (gw_plan_row, 48, ((:struct_size, 0), (:next, 8), (:pattern, 16), (:style, 24), (:input, 28), (:input_dim, 32), (:output, 36), (:output_dim, 40), (:reserved, 44),)),
    (gw_tensor_parallel_options, 56, ((:struct_size, 0), (:next, 8), (:plan, 16), (:rows, 24), (:row_count, 32), (:sequence_parallel, 40), (:loss_parallel, 44), (:overlap_chunks, 48), (:reserved, 52),)),
    (gw_parallel_options, 96, ((:struct_size, 0), (:next, 8), (:shard, 16), (:master_dtype, 24), (:recompute, 28), (:recompute_ratio, 32), (:recompute_every, 40), (:context_method, 44), (:seed, 48), (:tensor_parallel, 56), (:pipeline, 64), (:first_layers, 72), (:first_layer_count, 80), (:stage_split, 88), (:activation_offload, 92),)),
    (gw_optimizer_rule, 48, ((:struct_size, 0), (:next, 8), (:pattern, 16), (:lr_scale, 24), (:weight_decay, 32), (:frozen, 40), (:adamw, 44),)),
    (gw_adafactor_options, 144, ((:struct_size, 0), (:next, 8), (:lr, 16), (:beta2_decay, 24), (:eps, 32), (:clip_threshold, 40), (:weight_decay, 48), (:schedule, 56), (:reserved, 60), (:ema_decay, 64), (:warmup_steps, 72), (:total_steps, 80), (:last_lr_ratio, 88), (:decay_steps, 96), (:rules, 104), (:rule_count, 112), (:loss_scale, 120), (:initial_loss_scale, 128), (:loss_scale_interval, 136),)),
    (gw_adamw_options, 144, ((:struct_size, 0), (:next, 8), (:lr, 16), (:beta1, 24), (:beta2, 32), (:eps, 40), (:weight_decay, 48), (:schedule, 56), (:moment_dtype, 60), (:ema_decay, 64), (:warmup_steps, 72), (:total_steps, 80), (:last_lr_ratio, 88), (:decay_steps, 96), (:rules, 104), (:rule_count, 112), (:loss_scale, 120), (:initial_loss_scale, 128), (:loss_scale_interval, 136),)),
    (gw_adamw8bit_options, 144, ((:struct_size, 0), (:next, 8), (:lr, 16), (:beta1, 24), (:beta2, 32), (:eps, 40), (:weight_decay, 48), (:schedule, 56), (:reserved, 60), (:ema_decay, 64), (:warmup_steps, 72), (:total_steps, 80), (:last_lr_ratio, 88), (:decay_steps, 96), (:rules, 104), (:rule_count, 112), (:loss_scale, 120), (:initial_loss_scale, 128), (:loss_scale_interval, 136),)),
    (gw_lion_options, 136, ((:struct_size, 0), (:next, 8), (:lr, 16), (:beta1, 24), (:beta2, 32), (:weight_decay, 40), (:schedule, 48), (:moment_dtype, 52), (:ema_decay, 56), (:warmup_steps, 64), (:total_steps, 72), (:last_lr_ratio, 80), (:decay_steps, 88), (:rules, 96), (:rule_count, 104), (:loss_scale, 112), (:initial_loss_scale, 120), (:loss_scale_interval, 128),)),
    (gw_muon_options, 192, ((:struct_size, 0), (:next, 8), (:lr, 16), (:momentum, 24), (:ns_steps, 32), (:eps, 40), (:adamw_lr_scale, 48), (:beta1, 56), (:beta2, 64), (:adamw_eps, 72), (:weight_decay, 80), (:nesterov, 88), (:match_rms, 92), (:schedule, 96), (:matrix_dtype, 100), (:moment_dtype, 104), (:reserved, 108), (:ema_decay, 112), (:warmup_steps, 120), (:total_steps, 128), (:last_lr_ratio, 136), (:decay_steps, 144), (:rules, 152), (:rule_count, 160), (:loss_scale, 168), (:initial_loss_scale, 176), (:loss_scale_interval, 184),)),
    (gw_sgd_options, 128, ((:struct_size, 0), (:next, 8), (:lr, 16), (:momentum, 24), (:weight_decay, 32), (:nesterov, 40), (:schedule, 44), (:ema_decay, 48), (:warmup_steps, 56), (:total_steps, 64), (:last_lr_ratio, 72), (:decay_steps, 80), (:rules, 88), (:rule_count, 96), (:loss_scale, 104), (:initial_loss_scale, 112), (:loss_scale_interval, 120),)),
    (gw_optimizer_call, 88, ((:struct_size, 0), (:next, 8), (:name, 16), (:value, 24), (:gradient, 32), (:states, 40), (:state_count, 48), (:reserved, 52), (:lr, 56), (:weight_decay, 64), (:step, 72), (:stream, 80),)),
    (gw_custom_optimizer_options, 168, ((:struct_size, 0), (:next, 8), (:name, 16), (:states, 24), (:state_count, 32), (:step, 40), (:user, 48), (:free_user, 56), (:lr, 64), (:weight_decay, 72), (:schedule, 80), (:reserved, 84), (:ema_decay, 88), (:warmup_steps, 96), (:total_steps, 104), (:last_lr_ratio, 112), (:decay_steps, 120), (:rules, 128), (:rule_count, 136), (:loss_scale, 144), (:initial_loss_scale, 152), (:loss_scale_interval, 160),)),
    (gw_batch, 88, ((:struct_size, 0), (:next, 8), (:inputs, 16), (:input_count, 24), (:targets, 32), (:target_count, 40), (:weight, 48), (:shift_labels, 56), (:reserved, 60), (:documents, 64), (:positions, 72), (:token_weights, 80),)),
    (gw_step_options, 80, ((:struct_size, 0), (:next, 8), (:microbatches, 16), (:allow_non_finite, 20), (:max_grad_norm, 24), (:norm_type, 32), (:scale, 40), (:stop, 48), (:replay, 52), (:gradient_norms, 56), (:reserved, 60), (:label_smoothing, 64), (:z_loss, 72),)),
    (gw_step_result, 120, ((:struct_size, 0), (:next, 8), (:loss, 16), (:grad_norm, 24), (:tokens_per_second, 32), (:seconds, 40), (:wait_seconds, 48), (:lr, 56), (:weight, 64), (:step, 72), (:skipped, 80), (:skip_reason, 84), (:loss_scale, 88), (:tokens, 96), (:stop, 104), (:reserved, 108), (:weight_sum, 112),)),
    (gw_generate_options, 104, ((:struct_size, 0), (:next, 8), (:token_count, 16), (:temperature, 24), (:top_k, 32), (:seed, 40), (:top_p, 48), (:min_p, 56), (:repetition_penalty, 64), (:stop_tokens, 72), (:stop_count, 80), (:on_token, 88), (:user, 96),)),
    (gw_verify_options, 40, ((:struct_size, 0), (:next, 8), (:parallel, 16), (:tolerance, 24), (:microbatches, 32), (:reserved, 36),)),
    (gw_verify_result, 72, ((:struct_size, 0), (:next, 8), (:loss, 16), (:mesh_loss, 24), (:grad_norm, 32), (:mesh_grad_norm, 40), (:parameters, 48), (:differing, 56), (:difference, 64),)),
    (gw_data_source, 40, ((:struct_size, 0), (:next, 8), (:path, 16), (:format, 24), (:weight, 32),)),
    (gw_dataset_options, 80, ((:struct_size, 0), (:next, 8), (:sources, 16), (:source_count, 24), (:sequence, 32), (:seed, 40), (:vocab_size, 48), (:document_end, 56), (:packing, 64), (:shuffle, 68), (:read_ahead, 72), (:reserved, 76),)),
    (gw_data_batch, 96, ((:struct_size, 0), (:next, 8), (:batch, 16), (:tokens, 24), (:labels, 32), (:documents, 40), (:first_row, 48), (:last_row, 56), (:rank_first_row, 64), (:rank_last_row, 72), (:label_count, 80), (:data_seconds, 88),)),
    (gw_metrics_row, 176, ((:struct_size, 0), (:next, 8), (:step, 16), (:tokens, 24), (:samples, 32), (:loss, 40), (:validation_loss, 48), (:grad_norm, 56), (:lr, 64), (:loss_scale, 72), (:tokens_per_second, 80), (:mfu, 88), (:seconds, 96), (:data_seconds, 104), (:checkpoint_seconds, 112), (:evaluate_seconds, 120), (:wait_seconds, 128), (:slowest_rank, 136), (:slowest_rank_seconds, 144), (:memory, 152), (:memory_peak, 160), (:skipped, 168),)),
    (gw_metrics_options, 88, ((:struct_size, 0), (:next, 8), (:json_lines, 16), (:csv, 24), (:svg, 32), (:every, 40), (:reserved, 44), (:sequence, 48), (:peak_flops, 56), (:sink, 64), (:user, 72), (:free_user, 80),)),
    (gw_metrics_step, 40, ((:struct_size, 0), (:next, 8), (:samples, 16), (:data_seconds, 24), (:checkpoint_seconds, 32),)),
    (gw_plan_options, 120, ((:struct_size, 0), (:next, 8), (:decoder, 16), (:mesh, 24), (:parallel, 32), (:ranks, 40), (:microbatches, 44), (:rows, 48), (:sequence, 56), (:moment_dtype, 64), (:one_host, 68), (:lora, 72), (:fp8, 80), (:optimizer, 88), (:option_names, 96), (:option_values, 104), (:option_count, 112),)),
)

const NAMES = (:gw_error_info_init, :gw_last_error, :gw_last_error_text, :gw_error_take, :gw_error_describe, :gw_error_retain, :gw_error_release, :gw_error_set, :gw_status_name, :gw_dtype_name, :gw_dtype_bytes, :gw_version, :gw_abi_version, :gw_abi_range, :gw_interrupt_set, :gw_log_read, :gw_config_text, :gw_memory_info_init, :gw_host_memory, :gw_allocator_init, :gw_allocator_set, :gw_bytes_data, :gw_bytes_size, :gw_bytes_retain, :gw_bytes_release, :gw_view_set, :gw_tensor_copy, :gw_tensor_to_host, :gw_tensor_order, :gw_tensor_view, :gw_tensor_is_read_only, :gw_tensor_retain, :gw_tensor_release, :gw_tensor_from_dlpack, :gw_tensor_to_dlpack, :gw_store_create_file, :gw_store_callbacks_init, :gw_store_create_callbacks, :gw_store_retain, :gw_store_release, :gw_gang_options_init, :gw_gang_create, :gw_gang_id_create, :gw_gang_create_threads, :gw_gang_create_fake, :gw_gang_create_gang, :gw_gang_split, :gw_gang_duplicate, :gw_gang_retain, :gw_gang_release, :gw_gang_rank, :gw_gang_size, :gw_gang_name, :gw_gang_engine, :gw_gang_device, :gw_gang_native_handle, :gw_gang_traffic_init, :gw_gang_get_traffic, :gw_gang_alloc, :gw_gang_alloc_tensor, :gw_gang_free, :gw_gang_alloc_shared, :gw_gang_begin_trace, :gw_gang_end_trace, :gw_gang_shutdown, :gw_gang_abort, :gw_gang_async_error, :gw_gang_shrink, :gw_gang_flight_record, :gw_work_poll, :gw_work_wait, :gw_work_wait_many, :gw_work_order, :gw_work_error, :gw_work_attach, :gw_work_retain, :gw_work_release, :gw_collective_init, :gw_gang_run, :gw_gang_run_batch, :gw_gang_barrier, :gw_gang_barrier_async, :gw_gang_all_reduce, :gw_gang_all_reduce_async, :gw_gang_all_gather, :gw_gang_all_gather_async, :gw_gang_all_gather_list, :gw_gang_all_gather_list_async, :gw_gang_reduce_scatter, :gw_gang_reduce_scatter_async, :gw_gang_broadcast, :gw_gang_broadcast_async, :gw_gang_reduce, :gw_gang_reduce_async, :gw_gang_gather, :gw_gang_gather_async, :gw_gang_scatter, :gw_gang_scatter_async, :gw_gang_all_to_all, :gw_gang_all_to_all_async, :gw_gang_send, :gw_gang_send_async, :gw_gang_recv, :gw_gang_recv_async, :gw_gang_probe, :gw_gang_broadcast_bytes, :gw_gang_all_gather_bytes, :gw_gang_broadcast_flag, :gw_gang_broadcast_flag_async, :gw_gang_all_sum, :gw_gang_all_sum_async, :gw_mesh_options_init, :gw_mesh_options_preset, :gw_gangs_create, :gw_gangs_create_parallel, :gw_gangs_create_fsdp, :gw_gang_places_init, :gw_gangs_create_of, :gw_gangs_create_fake, :gw_gangs_retain, :gw_gangs_release, :gw_gangs_get, :gw_gangs_coordinate, :gw_gangs_data_shard, :gw_gangs_shutdown, :gw_gangs_abort, :gw_gangs_push_current, :gw_gangs_pop_current, :gw_gangs_current, :gw_gangs_set_default, :gw_partition_create, :gw_partition_inclusive, :gw_partition_union, :gw_partition_cartesian, :gw_partition_subtopology, :gw_partition_retain, :gw_partition_release, :gw_partition_info_init, :gw_partition_describe, :gw_partition_neighbors, :gw_movement_options_init, :gw_movement_create, :gw_movement_retain, :gw_movement_release, :gw_movement_duplicate, :gw_movement_forward, :gw_movement_backward, :gw_pipeline_options_init, :gw_pipeline_create, :gw_pipeline_retain, :gw_pipeline_release, :gw_pipeline_info_init, :gw_pipeline_describe, :gw_pipeline_stage_rank, :gw_pipeline_set_training, :gw_pipeline_action_init, :gw_pipeline_next, :gw_pipeline_input, :gw_pipeline_done, :gw_module_retain, :gw_module_release, :gw_module_materialize, :gw_module_freeze, :gw_module_check_replicas, :gw_memory_use_init, :gw_module_memory, :gw_init_options_init, :gw_parameter_options_init, :gw_module_parameter_count, :gw_module_parameter, :gw_module_find_parameter, :gw_parameter_retain, :gw_parameter_release, :gw_parameter_info_init, :gw_parameter_describe, :gw_parameter_view, :gw_parameter_tensor, :gw_parameter_state, :gw_parameter_state_tensor, :gw_parameter_gather, :gw_parameter_gather_gradient, :gw_parameter_assign, :gw_decoder_options_init, :gw_decoder_options_from_family, :gw_decoder_create, :gw_decoder_options_from_folder, :gw_linear_create, :gw_embedding_create, :gw_rmsnorm_create, :gw_layernorm_create, :gw_attention_options_init, :gw_attention_create, :gw_mlp_create, :gw_feed_forward_options_init, :gw_feed_forward_create, :gw_activation_create, :gw_dropout_create, :gw_block_create, :gw_sequential_create, :gw_custom_options_init, :gw_custom_create, :gw_call_forward, :gw_call_backward, :gw_frame_options_init, :gw_frame_create, :gw_frame_reset, :gw_frame_retain, :gw_frame_release, :gw_module_forward, :gw_module_backward, :gw_module_set_no_sync, :gw_save_options_init, :gw_module_save, :gw_load_options_init, :gw_module_load, :gw_fp8_options_init, :gw_fp8_apply, :gw_lora_options_init, :gw_lora_apply, :gw_lora_apply_folder, :gw_lora_enable, :gw_lora_save, :gw_lora_load, :gw_lora_merge, :gw_checkpoints_options_init, :gw_checkpoints_create, :gw_checkpoints_retain, :gw_checkpoints_release, :gw_checkpoint_part_init, :gw_checkpoint_text_init, :gw_checkpoint_state_init, :gw_checkpoints_due, :gw_checkpoints_save, :gw_checkpoints_wait, :gw_restore_options_init, :gw_checkpoints_restore, :gw_checkpoints_text, :gw_checkpoints_user, :gw_checkpoints_notes, :gw_checkpoints_buffer_bytes, :gw_optimizer_load, :gw_dtype_rule_init, :gw_shard_options_init, :gw_plan_row_init, :gw_tensor_parallel_options_init, :gw_parallel_options_init, :gw_parallelize, :gw_tensor_parallel, :gw_context_parallel, :gw_recompute, :gw_fully_shard, :gw_replicate, :gw_model_from_folder, :gw_shard_group_create, :gw_shard_group_retain, :gw_shard_group_release, :gw_shard_group_unshard, :gw_shard_group_unshard_async, :gw_shard_group_reshard, :gw_shard_group_view, :gw_shard_group_tensor, :gw_shard_group_add_gradient, :gw_shard_group_reduce, :gw_shard_group_begin_update, :gw_shard_group_end_update, :gw_module_from_groups, :gw_optimizer_rule_init, :gw_optimizer_create, :gw_optimizer_retain, :gw_optimizer_release, :gw_optimizer_steps, :gw_optimizer_lr, :gw_optimizer_set_lr, :gw_optimizer_loss_scale, :gw_optimizer_set_loss_scale, :gw_optimizer_set_steps, :gw_optimizer_base_lr, :gw_optimizer_finite_steps, :gw_optimizer_restore_loss_scale, :gw_optimizer_swap_ema, :gw_clip_grad_norm, :gw_zero_grad, :gw_adafactor_options_init, :gw_adafactor_create, :gw_adamw_options_init, :gw_adamw_create, :gw_adamw8bit_options_init, :gw_adamw8bit_create, :gw_lion_options_init, :gw_lion_create, :gw_muon_options_init, :gw_muon_create, :gw_sgd_options_init, :gw_sgd_create, :gw_custom_optimizer_options_init, :gw_custom_optimizer_create, :gw_optimizer_set_schedule, :gw_batch_init, :gw_step_options_init, :gw_step_result_init, :gw_train_step, :gw_module_gradient_norms, :gw_eval_step, :gw_optimizer_step, :gw_log_probs, :gw_generate_options_init, :gw_generate, :gw_generate_rows, :gw_verify_options_init, :gw_verify_result_init, :gw_verify, :gw_verify_groups, :gw_data_source_init, :gw_dataset_options_init, :gw_dataset_create, :gw_dataset_retain, :gw_dataset_release, :gw_data_batch_init, :gw_dataset_next, :gw_dataset_rows_per_epoch, :gw_dataset_rows_taken, :gw_dataset_batches_taken, :gw_dataset_set_rows_taken, :gw_dataset_position, :gw_dataset_restore, :gw_metrics_row_init, :gw_metrics_options_init, :gw_metrics_create, :gw_metrics_retain, :gw_metrics_release, :gw_metrics_step_init, :gw_metrics_log, :gw_metrics_latest, :gw_metrics_log_evaluation, :gw_metrics_flush, :gw_metrics_position, :gw_metrics_restore, :gw_plan_options_init, :gw_plan_memory,)
const ADDRESSES = fill(C_NULL, 339)

# Looks every function up in the library at `path`. The handle stays open: the library is never unloaded.
function open_library(path)
    handle = Libdl.dlopen(path)
    for i in 1:length(NAMES)
        ADDRESSES[i] = Libdl.dlsym(handle, NAMES[i])
    end
    return handle
end

gw_error_info_init(info, size) =
    ccall(ADDRESSES[1], Cvoid, (Ptr{gw_error_info}, Csize_t), info, size)
gw_last_error(info) =
    ccall(ADDRESSES[2], gw_status, (Ptr{gw_error_info},), info)
gw_last_error_text() =
    ccall(ADDRESSES[3], Ptr{Cchar}, ())
gw_error_take() =
    ccall(ADDRESSES[4], Ptr{gw_error}, ())
gw_error_describe(error, info) =
    ccall(ADDRESSES[5], gw_status, (Ptr{gw_error}, Ptr{gw_error_info}), error, info)
gw_error_retain(error) =
    ccall(ADDRESSES[6], Ptr{gw_error}, (Ptr{gw_error},), error)
gw_error_release(error) =
    ccall(ADDRESSES[7], Cvoid, (Ptr{gw_error},), error)
gw_error_set(message) =
    ccall(ADDRESSES[8], gw_status, (Ptr{Cchar},), message)
gw_status_name(status) =
    ccall(ADDRESSES[9], Ptr{Cchar}, (gw_status,), status)
gw_dtype_name(dtype) =
    ccall(ADDRESSES[10], Ptr{Cchar}, (gw_dtype,), dtype)
gw_dtype_bytes(dtype) =
    ccall(ADDRESSES[11], Csize_t, (gw_dtype,), dtype)
gw_version(out_major, out_minor, out_patch) =
    ccall(ADDRESSES[12], Cvoid, (Ptr{Int32}, Ptr{Int32}, Ptr{Int32}), out_major, out_minor, out_patch)
gw_abi_version(out_major, out_minor) =
    ccall(ADDRESSES[13], Cvoid, (Ptr{Int32}, Ptr{Int32}), out_major, out_minor)
gw_abi_range(out_lowest, out_highest) =
    ccall(ADDRESSES[14], Cvoid, (Ptr{Int32}, Ptr{Int32}), out_lowest, out_highest)
gw_interrupt_set(check, user, release) =
    ccall(ADDRESSES[15], gw_status, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}), check, user, release)
gw_log_read(first, text, capacity, out_len, out_next) =
    ccall(ADDRESSES[16], gw_status, (UInt64, Ptr{Cchar}, Csize_t, Ptr{Csize_t}, Ptr{UInt64}), first, text, capacity, out_len, out_next)
gw_config_text(text, capacity, out_len) =
    ccall(ADDRESSES[17], gw_status, (Ptr{Cchar}, Csize_t, Ptr{Csize_t}), text, capacity, out_len)
gw_memory_info_init(info, size) =
    ccall(ADDRESSES[18], Cvoid, (Ptr{gw_memory_info}, Csize_t), info, size)
gw_host_memory(info) =
    ccall(ADDRESSES[19], gw_status, (Ptr{gw_memory_info},), info)
gw_allocator_init(allocator, size) =
    ccall(ADDRESSES[20], Cvoid, (Ptr{gw_allocator}, Csize_t), allocator, size)
gw_allocator_set(allocator) =
    ccall(ADDRESSES[21], gw_status, (Ptr{gw_allocator},), allocator)
gw_bytes_data(bytes) =
    ccall(ADDRESSES[22], Ptr{Cvoid}, (Ptr{gw_bytes},), bytes)
gw_bytes_size(bytes) =
    ccall(ADDRESSES[23], Csize_t, (Ptr{gw_bytes},), bytes)
gw_bytes_retain(bytes) =
    ccall(ADDRESSES[24], Ptr{gw_bytes}, (Ptr{gw_bytes},), bytes)
gw_bytes_release(bytes) =
    ccall(ADDRESSES[25], Cvoid, (Ptr{gw_bytes},), bytes)
gw_view_set(view, data, shape, ndim, dtype) =
    ccall(ADDRESSES[26], gw_status, (Ptr{gw_view}, Ptr{Cvoid}, Ptr{Int64}, Int32, gw_dtype), view, data, shape, ndim, dtype)
gw_tensor_copy(view, out_tensor) =
    ccall(ADDRESSES[27], gw_status, (Ptr{gw_view}, Ptr{Ptr{gw_tensor}}), view, out_tensor)
gw_tensor_to_host(tensor, stream, out_tensor) =
    ccall(ADDRESSES[28], gw_status, (Ptr{gw_tensor}, Ptr{Cvoid}, Ptr{Ptr{gw_tensor}}), tensor, stream, out_tensor)
gw_tensor_order(tensor, stream) =
    ccall(ADDRESSES[29], gw_status, (Ptr{gw_tensor}, Ptr{Cvoid}), tensor, stream)
gw_tensor_view(tensor, out_view) =
    ccall(ADDRESSES[30], gw_status, (Ptr{gw_tensor}, Ptr{gw_view}), tensor, out_view)
gw_tensor_is_read_only(tensor) =
    ccall(ADDRESSES[31], Int32, (Ptr{gw_tensor},), tensor)
gw_tensor_retain(tensor) =
    ccall(ADDRESSES[32], Ptr{gw_tensor}, (Ptr{gw_tensor},), tensor)
gw_tensor_release(tensor) =
    ccall(ADDRESSES[33], Cvoid, (Ptr{gw_tensor},), tensor)
gw_tensor_from_dlpack(managed, out_tensor) =
    ccall(ADDRESSES[34], gw_status, (Ptr{DLManagedTensorVersioned}, Ptr{Ptr{gw_tensor}}), managed, out_tensor)
gw_tensor_to_dlpack(tensor, out_managed) =
    ccall(ADDRESSES[35], gw_status, (Ptr{gw_tensor}, Ptr{Ptr{DLManagedTensorVersioned}}), tensor, out_managed)
gw_store_create_file(folder, out_store) =
    ccall(ADDRESSES[36], gw_status, (Ptr{Cchar}, Ptr{Ptr{gw_store}}), folder, out_store)
gw_store_callbacks_init(callbacks, size) =
    ccall(ADDRESSES[37], Cvoid, (Ptr{gw_store_callbacks}, Csize_t), callbacks, size)
gw_store_create_callbacks(callbacks, out_store) =
    ccall(ADDRESSES[38], gw_status, (Ptr{gw_store_callbacks}, Ptr{Ptr{gw_store}}), callbacks, out_store)
gw_store_retain(store) =
    ccall(ADDRESSES[39], Ptr{gw_store}, (Ptr{gw_store},), store)
gw_store_release(store) =
    ccall(ADDRESSES[40], Cvoid, (Ptr{gw_store},), store)
gw_gang_options_init(options, size) =
    ccall(ADDRESSES[41], Cvoid, (Ptr{gw_gang_options}, Csize_t), options, size)
gw_gang_create(options, out_gang) =
    ccall(ADDRESSES[42], gw_status, (Ptr{gw_gang_options}, Ptr{Ptr{gw_gang}}), options, out_gang)
gw_gang_id_create(id, capacity, out_size) =
    ccall(ADDRESSES[43], gw_status, (Ptr{Cvoid}, Csize_t, Ptr{Csize_t}), id, capacity, out_size)
gw_gang_create_threads(count, options, out_gangs) =
    ccall(ADDRESSES[44], gw_status, (Int32, Ptr{gw_gang_options}, Ptr{Ptr{gw_gang}}), count, options, out_gangs)
gw_gang_create_fake(rank, size, options, out_gang) =
    ccall(ADDRESSES[45], gw_status, (Int32, Int32, Ptr{gw_gang_options}, Ptr{Ptr{gw_gang}}), rank, size, options, out_gang)
gw_gang_create_gang(gang, ranks, rank_count, out_gang) =
    ccall(ADDRESSES[46], gw_status, (Ptr{gw_gang}, Ptr{Int32}, Csize_t, Ptr{Ptr{gw_gang}}), gang, ranks, rank_count, out_gang)
gw_gang_split(gang, color, key, out_gang) =
    ccall(ADDRESSES[47], gw_status, (Ptr{gw_gang}, Int32, Int32, Ptr{Ptr{gw_gang}}), gang, color, key, out_gang)
gw_gang_duplicate(gang, out_gang) =
    ccall(ADDRESSES[48], gw_status, (Ptr{gw_gang}, Ptr{Ptr{gw_gang}}), gang, out_gang)
gw_gang_retain(gang) =
    ccall(ADDRESSES[49], Ptr{gw_gang}, (Ptr{gw_gang},), gang)
gw_gang_release(gang) =
    ccall(ADDRESSES[50], Cvoid, (Ptr{gw_gang},), gang)
gw_gang_rank(gang) =
    ccall(ADDRESSES[51], Int32, (Ptr{gw_gang},), gang)
gw_gang_size(gang) =
    ccall(ADDRESSES[52], Int32, (Ptr{gw_gang},), gang)
gw_gang_name(gang) =
    ccall(ADDRESSES[53], Ptr{Cchar}, (Ptr{gw_gang},), gang)
gw_gang_engine(gang) =
    ccall(ADDRESSES[54], Ptr{Cchar}, (Ptr{gw_gang},), gang)
gw_gang_device(gang) =
    ccall(ADDRESSES[55], Ptr{Cchar}, (Ptr{gw_gang},), gang)
gw_gang_native_handle(gang, out_handle) =
    ccall(ADDRESSES[56], gw_status, (Ptr{gw_gang}, Ptr{Ptr{Cvoid}}), gang, out_handle)
gw_gang_traffic_init(traffic, size) =
    ccall(ADDRESSES[57], Cvoid, (Ptr{gw_gang_traffic}, Csize_t), traffic, size)
gw_gang_get_traffic(gang, traffic) =
    ccall(ADDRESSES[58], gw_status, (Ptr{gw_gang}, Ptr{gw_gang_traffic}), gang, traffic)
gw_gang_alloc(gang, bytes, out_data) =
    ccall(ADDRESSES[59], gw_status, (Ptr{gw_gang}, Csize_t, Ptr{Ptr{Cvoid}}), gang, bytes, out_data)
gw_gang_alloc_tensor(gang, shape, ndim, dtype, out_tensor) =
    ccall(ADDRESSES[60], gw_status, (Ptr{gw_gang}, Ptr{Int64}, Int32, gw_dtype, Ptr{Ptr{gw_tensor}}), gang, shape, ndim, dtype, out_tensor)
gw_gang_free(gang, data) =
    ccall(ADDRESSES[61], Cvoid, (Ptr{gw_gang}, Ptr{Cvoid}), gang, data)
gw_gang_alloc_shared(gang, bytes, out_data) =
    ccall(ADDRESSES[62], gw_status, (Ptr{gw_gang}, Csize_t, Ptr{Ptr{Cvoid}}), gang, bytes, out_data)
gw_gang_begin_trace(gang, folder) =
    ccall(ADDRESSES[63], gw_status, (Ptr{gw_gang}, Ptr{Cchar}), gang, folder)
gw_gang_end_trace(gang) =
    ccall(ADDRESSES[64], gw_status, (Ptr{gw_gang},), gang)
gw_gang_shutdown(gang, timeout_ms) =
    ccall(ADDRESSES[65], gw_status, (Ptr{gw_gang}, Int64), gang, timeout_ms)
gw_gang_abort(gang, reason) =
    ccall(ADDRESSES[66], gw_status, (Ptr{gw_gang}, Ptr{Cchar}), gang, reason)
gw_gang_async_error(gang) =
    ccall(ADDRESSES[67], gw_status, (Ptr{gw_gang},), gang)
gw_gang_shrink(gang, survivors, survivor_count, out_gang) =
    ccall(ADDRESSES[68], gw_status, (Ptr{gw_gang}, Ptr{Int32}, Csize_t, Ptr{Ptr{gw_gang}}), gang, survivors, survivor_count, out_gang)
gw_gang_flight_record(gang, text, capacity, out_len) =
    ccall(ADDRESSES[69], gw_status, (Ptr{gw_gang}, Ptr{Cchar}, Csize_t, Ptr{Csize_t}), gang, text, capacity, out_len)
gw_work_poll(work, out_done) =
    ccall(ADDRESSES[70], gw_status, (Ptr{gw_work}, Ptr{Int32}), work, out_done)
gw_work_wait(work, timeout_ms) =
    ccall(ADDRESSES[71], gw_status, (Ptr{gw_work}, Int64), work, timeout_ms)
gw_work_wait_many(works, work_count, timeout_ms) =
    ccall(ADDRESSES[72], gw_status, (Ptr{Ptr{gw_work}}, Csize_t, Int64), works, work_count, timeout_ms)
gw_work_order(work, stream) =
    ccall(ADDRESSES[73], gw_status, (Ptr{gw_work}, Ptr{Cvoid}), work, stream)
gw_work_error(work) =
    ccall(ADDRESSES[74], gw_status, (Ptr{gw_work},), work)
gw_work_attach(work, object, free_object) =
    ccall(ADDRESSES[75], gw_status, (Ptr{gw_work}, Ptr{Cvoid}, Ptr{Cvoid}), work, object, free_object)
gw_work_retain(work) =
    ccall(ADDRESSES[76], Ptr{gw_work}, (Ptr{gw_work},), work)
gw_work_release(work) =
    ccall(ADDRESSES[77], Cvoid, (Ptr{gw_work},), work)
gw_collective_init(record, size) =
    ccall(ADDRESSES[78], Cvoid, (Ptr{gw_collective}, Csize_t), record, size)
gw_gang_run(gang, record, stream, out_work) =
    ccall(ADDRESSES[79], gw_status, (Ptr{gw_gang}, Ptr{gw_collective}, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, record, stream, out_work)
gw_gang_run_batch(gang, records, record_count, stream, out_work) =
    ccall(ADDRESSES[80], gw_status, (Ptr{gw_gang}, Ptr{gw_collective}, Csize_t, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, records, record_count, stream, out_work)
gw_gang_barrier(gang, stream) =
    ccall(ADDRESSES[81], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}), gang, stream)
gw_gang_barrier_async(gang, stream, out_work) =
    ccall(ADDRESSES[82], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, stream, out_work)
gw_gang_all_reduce(gang, input, output, count, dtype, reduce, stream) =
    ccall(ADDRESSES[83], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, gw_reduce, Ptr{Cvoid}), gang, input, output, count, dtype, reduce, stream)
gw_gang_all_reduce_async(gang, input, output, count, dtype, reduce, stream, out_work) =
    ccall(ADDRESSES[84], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, gw_reduce, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, input, output, count, dtype, reduce, stream, out_work)
gw_gang_all_gather(gang, input, output, count, dtype, stream) =
    ccall(ADDRESSES[85], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, Ptr{Cvoid}), gang, input, output, count, dtype, stream)
gw_gang_all_gather_async(gang, input, output, count, dtype, stream, out_work) =
    ccall(ADDRESSES[86], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, input, output, count, dtype, stream, out_work)
gw_gang_all_gather_list(gang, input, outputs, count, dtype, stream) =
    ccall(ADDRESSES[87], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Csize_t, gw_dtype, Ptr{Cvoid}), gang, input, outputs, count, dtype, stream)
gw_gang_all_gather_list_async(gang, input, outputs, count, dtype, stream, out_work) =
    ccall(ADDRESSES[88], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Csize_t, gw_dtype, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, input, outputs, count, dtype, stream, out_work)
gw_gang_reduce_scatter(gang, input, output, count, dtype, reduce, stream) =
    ccall(ADDRESSES[89], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, gw_reduce, Ptr{Cvoid}), gang, input, output, count, dtype, reduce, stream)
gw_gang_reduce_scatter_async(gang, input, output, count, dtype, reduce, stream, out_work) =
    ccall(ADDRESSES[90], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, gw_reduce, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, input, output, count, dtype, reduce, stream, out_work)
gw_gang_broadcast(gang, input, output, count, dtype, root, stream) =
    ccall(ADDRESSES[91], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, Int32, Ptr{Cvoid}), gang, input, output, count, dtype, root, stream)
gw_gang_broadcast_async(gang, input, output, count, dtype, root, stream, out_work) =
    ccall(ADDRESSES[92], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, Int32, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, input, output, count, dtype, root, stream, out_work)
gw_gang_reduce(gang, input, output, count, dtype, reduce, root, stream) =
    ccall(ADDRESSES[93], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, gw_reduce, Int32, Ptr{Cvoid}), gang, input, output, count, dtype, reduce, root, stream)
gw_gang_reduce_async(gang, input, output, count, dtype, reduce, root, stream, out_work) =
    ccall(ADDRESSES[94], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, gw_reduce, Int32, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, input, output, count, dtype, reduce, root, stream, out_work)
gw_gang_gather(gang, input, output, count, dtype, root, stream) =
    ccall(ADDRESSES[95], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, Int32, Ptr{Cvoid}), gang, input, output, count, dtype, root, stream)
gw_gang_gather_async(gang, input, output, count, dtype, root, stream, out_work) =
    ccall(ADDRESSES[96], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, Int32, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, input, output, count, dtype, root, stream, out_work)
gw_gang_scatter(gang, input, output, count, dtype, root, stream) =
    ccall(ADDRESSES[97], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, Int32, Ptr{Cvoid}), gang, input, output, count, dtype, root, stream)
gw_gang_scatter_async(gang, input, output, count, dtype, root, stream, out_work) =
    ccall(ADDRESSES[98], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, Int32, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, input, output, count, dtype, root, stream, out_work)
gw_gang_all_to_all(gang, input, output, count, dtype, stream) =
    ccall(ADDRESSES[99], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, Ptr{Cvoid}), gang, input, output, count, dtype, stream)
gw_gang_all_to_all_async(gang, input, output, count, dtype, stream, out_work) =
    ccall(ADDRESSES[100], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, gw_dtype, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, input, output, count, dtype, stream, out_work)
gw_gang_send(gang, input, count, dtype, peer, stream) =
    ccall(ADDRESSES[101], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Csize_t, gw_dtype, Int32, Ptr{Cvoid}), gang, input, count, dtype, peer, stream)
gw_gang_send_async(gang, input, count, dtype, peer, stream, out_work) =
    ccall(ADDRESSES[102], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Csize_t, gw_dtype, Int32, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, input, count, dtype, peer, stream, out_work)
gw_gang_recv(gang, output, count, dtype, peer, stream) =
    ccall(ADDRESSES[103], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Csize_t, gw_dtype, Int32, Ptr{Cvoid}), gang, output, count, dtype, peer, stream)
gw_gang_recv_async(gang, output, count, dtype, peer, stream, out_work) =
    ccall(ADDRESSES[104], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Csize_t, gw_dtype, Int32, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), gang, output, count, dtype, peer, stream, out_work)
gw_gang_probe(gang, peer, out_ready, out_count, out_dtype) =
    ccall(ADDRESSES[105], gw_status, (Ptr{gw_gang}, Int32, Ptr{Int32}, Ptr{Csize_t}, Ptr{gw_dtype}), gang, peer, out_ready, out_count, out_dtype)
gw_gang_broadcast_bytes(gang, data, size, root, out_bytes) =
    ccall(ADDRESSES[106], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Csize_t, Int32, Ptr{Ptr{gw_bytes}}), gang, data, size, root, out_bytes)
gw_gang_all_gather_bytes(gang, data, size, out_sizes, out_bytes) =
    ccall(ADDRESSES[107], gw_status, (Ptr{gw_gang}, Ptr{Cvoid}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{gw_bytes}}), gang, data, size, out_sizes, out_bytes)
gw_gang_broadcast_flag(gang, flag, root, out_flag) =
    ccall(ADDRESSES[108], gw_status, (Ptr{gw_gang}, Int32, Int32, Ptr{Int32}), gang, flag, root, out_flag)
gw_gang_broadcast_flag_async(gang, flag, root, out_flag, out_work) =
    ccall(ADDRESSES[109], gw_status, (Ptr{gw_gang}, Int32, Int32, Ptr{Int32}, Ptr{Ptr{gw_work}}), gang, flag, root, out_flag, out_work)
gw_gang_all_sum(gang, value, out_sum) =
    ccall(ADDRESSES[110], gw_status, (Ptr{gw_gang}, Cdouble, Ptr{Cdouble}), gang, value, out_sum)
gw_gang_all_sum_async(gang, value, out_sum, out_work) =
    ccall(ADDRESSES[111], gw_status, (Ptr{gw_gang}, Cdouble, Ptr{Cdouble}, Ptr{Ptr{gw_work}}), gang, value, out_sum, out_work)
gw_mesh_options_init(options, size) =
    ccall(ADDRESSES[112], Cvoid, (Ptr{gw_mesh_options}, Csize_t), options, size)
gw_mesh_options_preset(options, preset, node_size) =
    ccall(ADDRESSES[113], gw_status, (Ptr{gw_mesh_options}, Ptr{Cchar}, Int32), options, preset, node_size)
gw_gangs_create(root, options, out_gangs) =
    ccall(ADDRESSES[114], gw_status, (Ptr{gw_gang}, Ptr{gw_mesh_options}, Ptr{Ptr{gw_gangs}}), root, options, out_gangs)
gw_gangs_create_parallel(root, tp, pp, cp, out_gangs) =
    ccall(ADDRESSES[115], gw_status, (Ptr{gw_gang}, Int32, Int32, Int32, Ptr{Ptr{gw_gangs}}), root, tp, pp, cp, out_gangs)
gw_gangs_create_fsdp(gangs, intra_node_size, out_gangs) =
    ccall(ADDRESSES[116], gw_status, (Ptr{gw_gangs}, Int32, Ptr{Ptr{gw_gangs}}), gangs, intra_node_size, out_gangs)
gw_gang_places_init(places, size) =
    ccall(ADDRESSES[117], Cvoid, (Ptr{gw_gang_places}, Csize_t), places, size)
gw_gangs_create_of(places, out_gangs) =
    ccall(ADDRESSES[118], gw_status, (Ptr{gw_gang_places}, Ptr{Ptr{gw_gangs}}), places, out_gangs)
gw_gangs_create_fake(device, out_gangs) =
    ccall(ADDRESSES[119], gw_status, (Ptr{Cchar}, Ptr{Ptr{gw_gangs}}), device, out_gangs)
gw_gangs_retain(gangs) =
    ccall(ADDRESSES[120], Ptr{gw_gangs}, (Ptr{gw_gangs},), gangs)
gw_gangs_release(gangs) =
    ccall(ADDRESSES[121], Cvoid, (Ptr{gw_gangs},), gangs)
gw_gangs_get(gangs, axes, out_gang) =
    ccall(ADDRESSES[122], gw_status, (Ptr{gw_gangs}, Ptr{Cchar}, Ptr{Ptr{gw_gang}}), gangs, axes, out_gang)
gw_gangs_coordinate(gangs, axis, out_index, out_degree) =
    ccall(ADDRESSES[123], gw_status, (Ptr{gw_gangs}, Ptr{Cchar}, Ptr{Int32}, Ptr{Int32}), gangs, axis, out_index, out_degree)
gw_gangs_data_shard(gangs, out_index, out_count) =
    ccall(ADDRESSES[124], gw_status, (Ptr{gw_gangs}, Ptr{Int32}, Ptr{Int32}), gangs, out_index, out_count)
gw_gangs_shutdown(gangs, timeout_ms) =
    ccall(ADDRESSES[125], gw_status, (Ptr{gw_gangs}, Int64), gangs, timeout_ms)
gw_gangs_abort(gangs, reason) =
    ccall(ADDRESSES[126], gw_status, (Ptr{gw_gangs}, Ptr{Cchar}), gangs, reason)
gw_gangs_push_current(gangs) =
    ccall(ADDRESSES[127], gw_status, (Ptr{gw_gangs},), gangs)
gw_gangs_pop_current(gangs) =
    ccall(ADDRESSES[128], gw_status, (Ptr{gw_gangs},), gangs)
gw_gangs_current(device, out_gangs) =
    ccall(ADDRESSES[129], gw_status, (Ptr{Cchar}, Ptr{Ptr{gw_gangs}}), device, out_gangs)
gw_gangs_set_default(device, gangs) =
    ccall(ADDRESSES[130], gw_status, (Ptr{Cchar}, Ptr{gw_gangs}), device, gangs)
gw_partition_create(gang, out_partition) =
    ccall(ADDRESSES[131], gw_status, (Ptr{gw_gang}, Ptr{Ptr{gw_partition}}), gang, out_partition)
gw_partition_inclusive(partition, workers, worker_count, out_partition) =
    ccall(ADDRESSES[132], gw_status, (Ptr{gw_partition}, Ptr{Int32}, Csize_t, Ptr{Ptr{gw_partition}}), partition, workers, worker_count, out_partition)
gw_partition_union(partition, other, out_partition) =
    ccall(ADDRESSES[133], gw_status, (Ptr{gw_partition}, Ptr{gw_partition}, Ptr{Ptr{gw_partition}}), partition, other, out_partition)
gw_partition_cartesian(partition, shape, dim_count, out_partition) =
    ccall(ADDRESSES[134], gw_status, (Ptr{gw_partition}, Ptr{Int32}, Csize_t, Ptr{Ptr{gw_partition}}), partition, shape, dim_count, out_partition)
gw_partition_subtopology(partition, kept, kept_count, out_partition) =
    ccall(ADDRESSES[135], gw_status, (Ptr{gw_partition}, Ptr{Int32}, Csize_t, Ptr{Ptr{gw_partition}}), partition, kept, kept_count, out_partition)
gw_partition_retain(partition) =
    ccall(ADDRESSES[136], Ptr{gw_partition}, (Ptr{gw_partition},), partition)
gw_partition_release(partition) =
    ccall(ADDRESSES[137], Cvoid, (Ptr{gw_partition},), partition)
gw_partition_info_init(info, size) =
    ccall(ADDRESSES[138], Cvoid, (Ptr{gw_partition_info}, Csize_t), info, size)
gw_partition_describe(partition, info) =
    ccall(ADDRESSES[139], gw_status, (Ptr{gw_partition}, Ptr{gw_partition_info}), partition, info)
gw_partition_neighbors(partition, dim, out_before, out_after) =
    ccall(ADDRESSES[140], gw_status, (Ptr{gw_partition}, Int32, Ptr{Int32}, Ptr{Int32}), partition, dim, out_before, out_after)
gw_movement_options_init(options, size) =
    ccall(ADDRESSES[141], Cvoid, (Ptr{gw_movement_options}, Csize_t), options, size)
gw_movement_create(source, target, kind, options, out_movement) =
    ccall(ADDRESSES[142], gw_status, (Ptr{gw_partition}, Ptr{gw_partition}, gw_movement_kind, Ptr{gw_movement_options}, Ptr{Ptr{gw_movement}}), source, target, kind, options, out_movement)
gw_movement_retain(movement) =
    ccall(ADDRESSES[143], Ptr{gw_movement}, (Ptr{gw_movement},), movement)
gw_movement_release(movement) =
    ccall(ADDRESSES[144], Cvoid, (Ptr{gw_movement},), movement)
gw_movement_duplicate(movement, out_movement) =
    ccall(ADDRESSES[145], gw_status, (Ptr{gw_movement}, Ptr{Ptr{gw_movement}}), movement, out_movement)
gw_movement_forward(movement, input, stream, out_tensor) =
    ccall(ADDRESSES[146], gw_status, (Ptr{gw_movement}, Ptr{gw_view}, Ptr{Cvoid}, Ptr{Ptr{gw_tensor}}), movement, input, stream, out_tensor)
gw_movement_backward(movement, output_grad, stream, out_tensor) =
    ccall(ADDRESSES[147], gw_status, (Ptr{gw_movement}, Ptr{gw_view}, Ptr{Cvoid}, Ptr{Ptr{gw_tensor}}), movement, output_grad, stream, out_tensor)
gw_pipeline_options_init(options, size) =
    ccall(ADDRESSES[148], Cvoid, (Ptr{gw_pipeline_options}, Csize_t), options, size)
gw_pipeline_create(gang, options, out_pipeline) =
    ccall(ADDRESSES[149], gw_status, (Ptr{gw_gang}, Ptr{gw_pipeline_options}, Ptr{Ptr{gw_pipeline}}), gang, options, out_pipeline)
gw_pipeline_retain(pipeline) =
    ccall(ADDRESSES[150], Ptr{gw_pipeline}, (Ptr{gw_pipeline},), pipeline)
gw_pipeline_release(pipeline) =
    ccall(ADDRESSES[151], Cvoid, (Ptr{gw_pipeline},), pipeline)
gw_pipeline_info_init(info, size) =
    ccall(ADDRESSES[152], Cvoid, (Ptr{gw_pipeline_info}, Csize_t), info, size)
gw_pipeline_describe(pipeline, info) =
    ccall(ADDRESSES[153], gw_status, (Ptr{gw_pipeline}, Ptr{gw_pipeline_info}), pipeline, info)
gw_pipeline_stage_rank(pipeline, stage, out_rank) =
    ccall(ADDRESSES[154], gw_status, (Ptr{gw_pipeline}, Int32, Ptr{Int32}), pipeline, stage, out_rank)
gw_pipeline_set_training(pipeline, training) =
    ccall(ADDRESSES[155], gw_status, (Ptr{gw_pipeline}, Int32), pipeline, training)
gw_pipeline_action_init(action, size) =
    ccall(ADDRESSES[156], Cvoid, (Ptr{gw_pipeline_action}, Csize_t), action, size)
gw_pipeline_next(pipeline, stream, action) =
    ccall(ADDRESSES[157], gw_status, (Ptr{gw_pipeline}, Ptr{Cvoid}, Ptr{gw_pipeline_action}), pipeline, stream, action)
gw_pipeline_input(pipeline, index, out_tensor) =
    ccall(ADDRESSES[158], gw_status, (Ptr{gw_pipeline}, Csize_t, Ptr{Ptr{gw_tensor}}), pipeline, index, out_tensor)
gw_pipeline_done(pipeline, outputs, output_count, stream) =
    ccall(ADDRESSES[159], gw_status, (Ptr{gw_pipeline}, Ptr{gw_view}, Csize_t, Ptr{Cvoid}), pipeline, outputs, output_count, stream)
gw_module_retain(model) =
    ccall(ADDRESSES[160], Ptr{gw_module}, (Ptr{gw_module},), model)
gw_module_release(model) =
    ccall(ADDRESSES[161], Cvoid, (Ptr{gw_module},), model)
gw_module_materialize(model, gangs, seed, master_dtype) =
    ccall(ADDRESSES[162], gw_status, (Ptr{gw_module}, Ptr{gw_gangs}, UInt64, gw_dtype), model, gangs, seed, master_dtype)
gw_module_freeze(model, pattern) =
    ccall(ADDRESSES[163], gw_status, (Ptr{gw_module}, Ptr{Cchar}), model, pattern)
gw_module_check_replicas(model, stream) =
    ccall(ADDRESSES[164], gw_status, (Ptr{gw_module}, Ptr{Cvoid}), model, stream)
gw_memory_use_init(memory, size) =
    ccall(ADDRESSES[165], Cvoid, (Ptr{gw_memory_use}, Csize_t), memory, size)
gw_module_memory(model, memory) =
    ccall(ADDRESSES[166], gw_status, (Ptr{gw_module}, Ptr{gw_memory_use}), model, memory)
gw_init_options_init(options, size) =
    ccall(ADDRESSES[167], Cvoid, (Ptr{gw_init_options}, Csize_t), options, size)
gw_parameter_options_init(options, size) =
    ccall(ADDRESSES[168], Cvoid, (Ptr{gw_parameter_options}, Csize_t), options, size)
gw_module_parameter_count(model, out_count) =
    ccall(ADDRESSES[169], gw_status, (Ptr{gw_module}, Ptr{Csize_t}), model, out_count)
gw_module_parameter(model, index, out_parameter) =
    ccall(ADDRESSES[170], gw_status, (Ptr{gw_module}, Csize_t, Ptr{Ptr{gw_parameter}}), model, index, out_parameter)
gw_module_find_parameter(model, name, out_parameter) =
    ccall(ADDRESSES[171], gw_status, (Ptr{gw_module}, Ptr{Cchar}, Ptr{Ptr{gw_parameter}}), model, name, out_parameter)
gw_parameter_retain(parameter) =
    ccall(ADDRESSES[172], Ptr{gw_parameter}, (Ptr{gw_parameter},), parameter)
gw_parameter_release(parameter) =
    ccall(ADDRESSES[173], Cvoid, (Ptr{gw_parameter},), parameter)
gw_parameter_info_init(info, size) =
    ccall(ADDRESSES[174], Cvoid, (Ptr{gw_parameter_info}, Csize_t), info, size)
gw_parameter_describe(parameter, info) =
    ccall(ADDRESSES[175], gw_status, (Ptr{gw_parameter}, Ptr{gw_parameter_info}), parameter, info)
gw_parameter_view(parameter, part, out_view) =
    ccall(ADDRESSES[176], gw_status, (Ptr{gw_parameter}, gw_part, Ptr{gw_view}), parameter, part, out_view)
gw_parameter_tensor(parameter, part, out_tensor) =
    ccall(ADDRESSES[177], gw_status, (Ptr{gw_parameter}, gw_part, Ptr{Ptr{gw_tensor}}), parameter, part, out_tensor)
gw_parameter_state(parameter, optimizer, name, out_view) =
    ccall(ADDRESSES[178], gw_status, (Ptr{gw_parameter}, Ptr{gw_optimizer}, Ptr{Cchar}, Ptr{gw_view}), parameter, optimizer, name, out_view)
gw_parameter_state_tensor(parameter, optimizer, name, out_tensor) =
    ccall(ADDRESSES[179], gw_status, (Ptr{gw_parameter}, Ptr{gw_optimizer}, Ptr{Cchar}, Ptr{Ptr{gw_tensor}}), parameter, optimizer, name, out_tensor)
gw_parameter_gather(parameter, stream, out_tensor) =
    ccall(ADDRESSES[180], gw_status, (Ptr{gw_parameter}, Ptr{Cvoid}, Ptr{Ptr{gw_tensor}}), parameter, stream, out_tensor)
gw_parameter_gather_gradient(parameter, stream, out_tensor) =
    ccall(ADDRESSES[181], gw_status, (Ptr{gw_parameter}, Ptr{Cvoid}, Ptr{Ptr{gw_tensor}}), parameter, stream, out_tensor)
gw_parameter_assign(parameter, values, stream) =
    ccall(ADDRESSES[182], gw_status, (Ptr{gw_parameter}, Ptr{gw_view}, Ptr{Cvoid}), parameter, values, stream)
gw_decoder_options_init(options, size) =
    ccall(ADDRESSES[183], Cvoid, (Ptr{gw_decoder_options}, Csize_t), options, size)
gw_decoder_options_from_family(family, options) =
    ccall(ADDRESSES[184], gw_status, (Ptr{Cchar}, Ptr{gw_decoder_options}), family, options)
gw_decoder_create(options, out_model) =
    ccall(ADDRESSES[185], gw_status, (Ptr{gw_decoder_options}, Ptr{Ptr{gw_module}}), options, out_model)
gw_decoder_options_from_folder(folder, options) =
    ccall(ADDRESSES[186], gw_status, (Ptr{Cchar}, Ptr{gw_decoder_options}), folder, options)
gw_linear_create(input_dim, output_dim, bias, out_model) =
    ccall(ADDRESSES[187], gw_status, (Int64, Int64, Int32, Ptr{Ptr{gw_module}}), input_dim, output_dim, bias, out_model)
gw_embedding_create(rows, dim, out_model) =
    ccall(ADDRESSES[188], gw_status, (Int64, Int64, Ptr{Ptr{gw_module}}), rows, dim, out_model)
gw_rmsnorm_create(dim, eps, out_model) =
    ccall(ADDRESSES[189], gw_status, (Int64, Cdouble, Ptr{Ptr{gw_module}}), dim, eps, out_model)
gw_layernorm_create(dim, eps, out_model) =
    ccall(ADDRESSES[190], gw_status, (Int64, Cdouble, Ptr{Ptr{gw_module}}), dim, eps, out_model)
gw_attention_options_init(options, size) =
    ccall(ADDRESSES[191], Cvoid, (Ptr{gw_attention_options}, Csize_t), options, size)
gw_attention_create(options, out_model) =
    ccall(ADDRESSES[192], gw_status, (Ptr{gw_attention_options}, Ptr{Ptr{gw_module}}), options, out_model)
gw_mlp_create(dim, ffn, bias, out_model) =
    ccall(ADDRESSES[193], gw_status, (Int64, Int64, Int32, Ptr{Ptr{gw_module}}), dim, ffn, bias, out_model)
gw_feed_forward_options_init(options, size) =
    ccall(ADDRESSES[194], Cvoid, (Ptr{gw_feed_forward_options}, Csize_t), options, size)
gw_feed_forward_create(options, out_model) =
    ccall(ADDRESSES[195], gw_status, (Ptr{gw_feed_forward_options}, Ptr{Ptr{gw_module}}), options, out_model)
gw_activation_create(activation, out_model) =
    ccall(ADDRESSES[196], gw_status, (gw_activation, Ptr{Ptr{gw_module}}), activation, out_model)
gw_dropout_create(probability, out_model) =
    ccall(ADDRESSES[197], gw_status, (Cdouble, Ptr{Ptr{gw_module}}), probability, out_model)
gw_block_create(attention, ffn, eps, out_model) =
    ccall(ADDRESSES[198], gw_status, (Ptr{gw_attention_options}, Int64, Cdouble, Ptr{Ptr{gw_module}}), attention, ffn, eps, out_model)
gw_sequential_create(models, model_count, out_model) =
    ccall(ADDRESSES[199], gw_status, (Ptr{Ptr{gw_module}}, Csize_t, Ptr{Ptr{gw_module}}), models, model_count, out_model)
gw_custom_options_init(options, size) =
    ccall(ADDRESSES[200], Cvoid, (Ptr{gw_custom_options}, Csize_t), options, size)
gw_custom_create(options, out_model) =
    ccall(ADDRESSES[201], gw_status, (Ptr{gw_custom_options}, Ptr{Ptr{gw_module}}), options, out_model)
gw_call_forward(call, child, inputs, input_count, out_views, out_capacity, out_count) =
    ccall(ADDRESSES[202], gw_status, (Ptr{gw_call}, Int32, Ptr{gw_view}, Csize_t, Ptr{gw_view}, Csize_t, Ptr{Csize_t}), call, child, inputs, input_count, out_views, out_capacity, out_count)
gw_call_backward(call, child, output_grads, grad_count, out_views, out_capacity, out_count) =
    ccall(ADDRESSES[203], gw_status, (Ptr{gw_call}, Int32, Ptr{gw_view}, Csize_t, Ptr{gw_view}, Csize_t, Ptr{Csize_t}), call, child, output_grads, grad_count, out_views, out_capacity, out_count)
gw_frame_options_init(options, size) =
    ccall(ADDRESSES[204], Cvoid, (Ptr{gw_frame_options}, Csize_t), options, size)
gw_frame_create(model, options, out_frame) =
    ccall(ADDRESSES[205], gw_status, (Ptr{gw_module}, Ptr{gw_frame_options}, Ptr{Ptr{gw_frame}}), model, options, out_frame)
gw_frame_reset(frame) =
    ccall(ADDRESSES[206], gw_status, (Ptr{gw_frame},), frame)
gw_frame_retain(frame) =
    ccall(ADDRESSES[207], Ptr{gw_frame}, (Ptr{gw_frame},), frame)
gw_frame_release(frame) =
    ccall(ADDRESSES[208], Cvoid, (Ptr{gw_frame},), frame)
gw_module_forward(model, inputs, input_count, frame, stream, out_tensors, out_capacity, out_count) =
    ccall(ADDRESSES[209], gw_status, (Ptr{gw_module}, Ptr{gw_view}, Csize_t, Ptr{gw_frame}, Ptr{Cvoid}, Ptr{Ptr{gw_tensor}}, Csize_t, Ptr{Csize_t}), model, inputs, input_count, frame, stream, out_tensors, out_capacity, out_count)
gw_module_backward(model, output_grads, grad_count, frame, stream, out_tensors, out_capacity, out_count) =
    ccall(ADDRESSES[210], gw_status, (Ptr{gw_module}, Ptr{gw_view}, Csize_t, Ptr{gw_frame}, Ptr{Cvoid}, Ptr{Ptr{gw_tensor}}, Csize_t, Ptr{Csize_t}), model, output_grads, grad_count, frame, stream, out_tensors, out_capacity, out_count)
gw_module_set_no_sync(model, no_sync) =
    ccall(ADDRESSES[211], gw_status, (Ptr{gw_module}, Int32), model, no_sync)
gw_save_options_init(options, size) =
    ccall(ADDRESSES[212], Cvoid, (Ptr{gw_save_options}, Csize_t), options, size)
gw_module_save(model, folder, options) =
    ccall(ADDRESSES[213], gw_status, (Ptr{gw_module}, Ptr{Cchar}, Ptr{gw_save_options}), model, folder, options)
gw_load_options_init(options, size) =
    ccall(ADDRESSES[214], Cvoid, (Ptr{gw_load_options}, Csize_t), options, size)
gw_module_load(model, path, options) =
    ccall(ADDRESSES[215], gw_status, (Ptr{gw_module}, Ptr{Cchar}, Ptr{gw_load_options}), model, path, options)
gw_fp8_options_init(options, size) =
    ccall(ADDRESSES[216], Cvoid, (Ptr{gw_fp8_options}, Csize_t), options, size)
gw_fp8_apply(model, options) =
    ccall(ADDRESSES[217], gw_status, (Ptr{gw_module}, Ptr{gw_fp8_options}), model, options)
gw_lora_options_init(options, size) =
    ccall(ADDRESSES[218], Cvoid, (Ptr{gw_lora_options}, Csize_t), options, size)
gw_lora_apply(model, options) =
    ccall(ADDRESSES[219], gw_status, (Ptr{gw_module}, Ptr{gw_lora_options}), model, options)
gw_lora_apply_folder(model, folder, seed) =
    ccall(ADDRESSES[220], gw_status, (Ptr{gw_module}, Ptr{Cchar}, UInt64), model, folder, seed)
gw_lora_enable(model, on) =
    ccall(ADDRESSES[221], gw_status, (Ptr{gw_module}, Int32), model, on)
gw_lora_save(model, folder, base, options) =
    ccall(ADDRESSES[222], gw_status, (Ptr{gw_module}, Ptr{Cchar}, Ptr{Cchar}, Ptr{gw_save_options}), model, folder, base, options)
gw_lora_load(model, folder) =
    ccall(ADDRESSES[223], gw_status, (Ptr{gw_module}, Ptr{Cchar}), model, folder)
gw_lora_merge(model, stream) =
    ccall(ADDRESSES[224], gw_status, (Ptr{gw_module}, Ptr{Cvoid}), model, stream)
gw_checkpoints_options_init(options, size) =
    ccall(ADDRESSES[225], Cvoid, (Ptr{gw_checkpoints_options}, Csize_t), options, size)
gw_checkpoints_create(gangs, folder, options, out_checkpoints) =
    ccall(ADDRESSES[226], gw_status, (Ptr{gw_gangs}, Ptr{Cchar}, Ptr{gw_checkpoints_options}, Ptr{Ptr{gw_checkpoints}}), gangs, folder, options, out_checkpoints)
gw_checkpoints_retain(checkpoints) =
    ccall(ADDRESSES[227], Ptr{gw_checkpoints}, (Ptr{gw_checkpoints},), checkpoints)
gw_checkpoints_release(checkpoints) =
    ccall(ADDRESSES[228], Cvoid, (Ptr{gw_checkpoints},), checkpoints)
gw_checkpoint_part_init(part, size) =
    ccall(ADDRESSES[229], Cvoid, (Ptr{gw_checkpoint_part}, Csize_t), part, size)
gw_checkpoint_text_init(text, size) =
    ccall(ADDRESSES[230], Cvoid, (Ptr{gw_checkpoint_text}, Csize_t), text, size)
gw_checkpoint_state_init(state, size) =
    ccall(ADDRESSES[231], Cvoid, (Ptr{gw_checkpoint_state}, Csize_t), state, size)
gw_checkpoints_due(checkpoints, step, out_due) =
    ccall(ADDRESSES[232], gw_status, (Ptr{gw_checkpoints}, Int64, Ptr{Int32}), checkpoints, step, out_due)
gw_checkpoints_save(checkpoints, parts, part_count, state) =
    ccall(ADDRESSES[233], gw_status, (Ptr{gw_checkpoints}, Ptr{gw_checkpoint_part}, Csize_t, Ptr{gw_checkpoint_state}), checkpoints, parts, part_count, state)
gw_checkpoints_wait(checkpoints) =
    ccall(ADDRESSES[234], gw_status, (Ptr{gw_checkpoints},), checkpoints)
gw_restore_options_init(options, size) =
    ccall(ADDRESSES[235], Cvoid, (Ptr{gw_restore_options}, Csize_t), options, size)
gw_checkpoints_restore(checkpoints, parts, part_count, options, out_step, out_tokens) =
    ccall(ADDRESSES[236], gw_status, (Ptr{gw_checkpoints}, Ptr{gw_checkpoint_part}, Csize_t, Ptr{gw_restore_options}, Ptr{Int64}, Ptr{Int64}), checkpoints, parts, part_count, options, out_step, out_tokens)
gw_checkpoints_text(checkpoints, name, text, capacity, out_len) =
    ccall(ADDRESSES[237], gw_status, (Ptr{gw_checkpoints}, Ptr{Cchar}, Ptr{Cchar}, Csize_t, Ptr{Csize_t}), checkpoints, name, text, capacity, out_len)
gw_checkpoints_user(checkpoints, data, capacity, out_size) =
    ccall(ADDRESSES[238], gw_status, (Ptr{gw_checkpoints}, Ptr{Cvoid}, Csize_t, Ptr{Csize_t}), checkpoints, data, capacity, out_size)
gw_checkpoints_notes(checkpoints, text, capacity, out_len) =
    ccall(ADDRESSES[239], gw_status, (Ptr{gw_checkpoints}, Ptr{Cchar}, Csize_t, Ptr{Csize_t}), checkpoints, text, capacity, out_len)
gw_checkpoints_buffer_bytes(checkpoints, out_bytes) =
    ccall(ADDRESSES[240], gw_status, (Ptr{gw_checkpoints}, Ptr{UInt64}), checkpoints, out_bytes)
gw_optimizer_load(optimizer, path) =
    ccall(ADDRESSES[241], gw_status, (Ptr{gw_optimizer}, Ptr{Cchar}), optimizer, path)
gw_dtype_rule_init(rule, size) =
    ccall(ADDRESSES[242], Cvoid, (Ptr{gw_dtype_rule}, Csize_t), rule, size)
gw_shard_options_init(options, size) =
    ccall(ADDRESSES[243], Cvoid, (Ptr{gw_shard_options}, Csize_t), options, size)
gw_plan_row_init(row, size) =
    ccall(ADDRESSES[244], Cvoid, (Ptr{gw_plan_row}, Csize_t), row, size)
gw_tensor_parallel_options_init(options, size) =
    ccall(ADDRESSES[245], Cvoid, (Ptr{gw_tensor_parallel_options}, Csize_t), options, size)
gw_parallel_options_init(options, size) =
    ccall(ADDRESSES[246], Cvoid, (Ptr{gw_parallel_options}, Csize_t), options, size)
gw_parallelize(model, gangs, options) =
    ccall(ADDRESSES[247], gw_status, (Ptr{gw_module}, Ptr{gw_gangs}, Ptr{gw_parallel_options}), model, gangs, options)
gw_tensor_parallel(model, gangs, options) =
    ccall(ADDRESSES[248], gw_status, (Ptr{gw_module}, Ptr{gw_gangs}, Ptr{gw_tensor_parallel_options}), model, gangs, options)
gw_context_parallel(model, gangs, method) =
    ccall(ADDRESSES[249], gw_status, (Ptr{gw_module}, Ptr{gw_gangs}, gw_context_method), model, gangs, method)
gw_recompute(model, kind, every, ratio) =
    ccall(ADDRESSES[250], gw_status, (Ptr{gw_module}, gw_recompute_kind, Int32, Cdouble), model, kind, every, ratio)
gw_fully_shard(model, pattern, gangs, options) =
    ccall(ADDRESSES[251], gw_status, (Ptr{gw_module}, Ptr{Cchar}, Ptr{gw_gangs}, Ptr{gw_shard_options}), model, pattern, gangs, options)
gw_replicate(model, gangs, options) =
    ccall(ADDRESSES[252], gw_status, (Ptr{gw_module}, Ptr{gw_gangs}, Ptr{gw_shard_options}), model, gangs, options)
gw_model_from_folder(gangs, folder, options, out_model) =
    ccall(ADDRESSES[253], gw_status, (Ptr{gw_gangs}, Ptr{Cchar}, Ptr{gw_parallel_options}, Ptr{Ptr{gw_module}}), gangs, folder, options, out_model)
gw_shard_group_create(gangs, name, parameters, parameter_count, options, seed, out_group) =
    ccall(ADDRESSES[254], gw_status, (Ptr{gw_gangs}, Ptr{Cchar}, Ptr{gw_parameter_options}, Csize_t, Ptr{gw_shard_options}, UInt64, Ptr{Ptr{gw_shard_group}}), gangs, name, parameters, parameter_count, options, seed, out_group)
gw_shard_group_retain(group) =
    ccall(ADDRESSES[255], Ptr{gw_shard_group}, (Ptr{gw_shard_group},), group)
gw_shard_group_release(group) =
    ccall(ADDRESSES[256], Cvoid, (Ptr{gw_shard_group},), group)
gw_shard_group_unshard(group, into, stream) =
    ccall(ADDRESSES[257], gw_status, (Ptr{gw_shard_group}, Ptr{gw_view}, Ptr{Cvoid}), group, into, stream)
gw_shard_group_unshard_async(group, stream, out_work) =
    ccall(ADDRESSES[258], gw_status, (Ptr{gw_shard_group}, Ptr{Cvoid}, Ptr{Ptr{gw_work}}), group, stream, out_work)
gw_shard_group_reshard(group, stream) =
    ccall(ADDRESSES[259], gw_status, (Ptr{gw_shard_group}, Ptr{Cvoid}), group, stream)
gw_shard_group_view(group, index, part, out_view) =
    ccall(ADDRESSES[260], gw_status, (Ptr{gw_shard_group}, Csize_t, gw_part, Ptr{gw_view}), group, index, part, out_view)
gw_shard_group_tensor(group, index, part, out_tensor) =
    ccall(ADDRESSES[261], gw_status, (Ptr{gw_shard_group}, Csize_t, gw_part, Ptr{Ptr{gw_tensor}}), group, index, part, out_tensor)
gw_shard_group_add_gradient(group, index, gradient, stream) =
    ccall(ADDRESSES[262], gw_status, (Ptr{gw_shard_group}, Csize_t, Ptr{gw_view}, Ptr{Cvoid}), group, index, gradient, stream)
gw_shard_group_reduce(group, stream) =
    ccall(ADDRESSES[263], gw_status, (Ptr{gw_shard_group}, Ptr{Cvoid}), group, stream)
gw_shard_group_begin_update(group, stream) =
    ccall(ADDRESSES[264], gw_status, (Ptr{gw_shard_group}, Ptr{Cvoid}), group, stream)
gw_shard_group_end_update(group, stream) =
    ccall(ADDRESSES[265], gw_status, (Ptr{gw_shard_group}, Ptr{Cvoid}), group, stream)
gw_module_from_groups(groups, group_count, out_model) =
    ccall(ADDRESSES[266], gw_status, (Ptr{Ptr{gw_shard_group}}, Csize_t, Ptr{Ptr{gw_module}}), groups, group_count, out_model)
gw_optimizer_rule_init(rule, size) =
    ccall(ADDRESSES[267], Cvoid, (Ptr{gw_optimizer_rule}, Csize_t), rule, size)
gw_optimizer_create(model, kind, names, values, option_count, out_optimizer) =
    ccall(ADDRESSES[268], gw_status, (Ptr{gw_module}, Ptr{Cchar}, Ptr{Ptr{Cchar}}, Ptr{Ptr{Cchar}}, Csize_t, Ptr{Ptr{gw_optimizer}}), model, kind, names, values, option_count, out_optimizer)
gw_optimizer_retain(optimizer) =
    ccall(ADDRESSES[269], Ptr{gw_optimizer}, (Ptr{gw_optimizer},), optimizer)
gw_optimizer_release(optimizer) =
    ccall(ADDRESSES[270], Cvoid, (Ptr{gw_optimizer},), optimizer)
gw_optimizer_steps(optimizer, out_steps) =
    ccall(ADDRESSES[271], gw_status, (Ptr{gw_optimizer}, Ptr{Int64}), optimizer, out_steps)
gw_optimizer_lr(optimizer, out_lr) =
    ccall(ADDRESSES[272], gw_status, (Ptr{gw_optimizer}, Ptr{Cdouble}), optimizer, out_lr)
gw_optimizer_set_lr(optimizer, lr) =
    ccall(ADDRESSES[273], gw_status, (Ptr{gw_optimizer}, Cdouble), optimizer, lr)
gw_optimizer_loss_scale(optimizer, out_scale) =
    ccall(ADDRESSES[274], gw_status, (Ptr{gw_optimizer}, Ptr{Cdouble}), optimizer, out_scale)
gw_optimizer_set_loss_scale(optimizer, scale) =
    ccall(ADDRESSES[275], gw_status, (Ptr{gw_optimizer}, Cdouble), optimizer, scale)
gw_optimizer_set_steps(optimizer, steps) =
    ccall(ADDRESSES[276], gw_status, (Ptr{gw_optimizer}, Int64), optimizer, steps)
gw_optimizer_base_lr(optimizer, out_lr) =
    ccall(ADDRESSES[277], gw_status, (Ptr{gw_optimizer}, Ptr{Cdouble}), optimizer, out_lr)
gw_optimizer_finite_steps(optimizer, out_steps) =
    ccall(ADDRESSES[278], gw_status, (Ptr{gw_optimizer}, Ptr{Int64}), optimizer, out_steps)
gw_optimizer_restore_loss_scale(optimizer, scale, finite_steps) =
    ccall(ADDRESSES[279], gw_status, (Ptr{gw_optimizer}, Cdouble, Int64), optimizer, scale, finite_steps)
gw_optimizer_swap_ema(optimizer, stream) =
    ccall(ADDRESSES[280], gw_status, (Ptr{gw_optimizer}, Ptr{Cvoid}), optimizer, stream)
gw_clip_grad_norm(model, max_norm, p, stream, out_norm) =
    ccall(ADDRESSES[281], gw_status, (Ptr{gw_module}, Cdouble, Cdouble, Ptr{Cvoid}, Ptr{Cdouble}), model, max_norm, p, stream, out_norm)
gw_zero_grad(model, stream) =
    ccall(ADDRESSES[282], gw_status, (Ptr{gw_module}, Ptr{Cvoid}), model, stream)
gw_adafactor_options_init(options, size) =
    ccall(ADDRESSES[283], Cvoid, (Ptr{gw_adafactor_options}, Csize_t), options, size)
gw_adafactor_create(model, options, out_optimizer) =
    ccall(ADDRESSES[284], gw_status, (Ptr{gw_module}, Ptr{gw_adafactor_options}, Ptr{Ptr{gw_optimizer}}), model, options, out_optimizer)
gw_adamw_options_init(options, size) =
    ccall(ADDRESSES[285], Cvoid, (Ptr{gw_adamw_options}, Csize_t), options, size)
gw_adamw_create(model, options, out_optimizer) =
    ccall(ADDRESSES[286], gw_status, (Ptr{gw_module}, Ptr{gw_adamw_options}, Ptr{Ptr{gw_optimizer}}), model, options, out_optimizer)
gw_adamw8bit_options_init(options, size) =
    ccall(ADDRESSES[287], Cvoid, (Ptr{gw_adamw8bit_options}, Csize_t), options, size)
gw_adamw8bit_create(model, options, out_optimizer) =
    ccall(ADDRESSES[288], gw_status, (Ptr{gw_module}, Ptr{gw_adamw8bit_options}, Ptr{Ptr{gw_optimizer}}), model, options, out_optimizer)
gw_lion_options_init(options, size) =
    ccall(ADDRESSES[289], Cvoid, (Ptr{gw_lion_options}, Csize_t), options, size)
gw_lion_create(model, options, out_optimizer) =
    ccall(ADDRESSES[290], gw_status, (Ptr{gw_module}, Ptr{gw_lion_options}, Ptr{Ptr{gw_optimizer}}), model, options, out_optimizer)
gw_muon_options_init(options, size) =
    ccall(ADDRESSES[291], Cvoid, (Ptr{gw_muon_options}, Csize_t), options, size)
gw_muon_create(model, options, out_optimizer) =
    ccall(ADDRESSES[292], gw_status, (Ptr{gw_module}, Ptr{gw_muon_options}, Ptr{Ptr{gw_optimizer}}), model, options, out_optimizer)
gw_sgd_options_init(options, size) =
    ccall(ADDRESSES[293], Cvoid, (Ptr{gw_sgd_options}, Csize_t), options, size)
gw_sgd_create(model, options, out_optimizer) =
    ccall(ADDRESSES[294], gw_status, (Ptr{gw_module}, Ptr{gw_sgd_options}, Ptr{Ptr{gw_optimizer}}), model, options, out_optimizer)
gw_custom_optimizer_options_init(options, size) =
    ccall(ADDRESSES[295], Cvoid, (Ptr{gw_custom_optimizer_options}, Csize_t), options, size)
gw_custom_optimizer_create(model, options, out_optimizer) =
    ccall(ADDRESSES[296], gw_status, (Ptr{gw_module}, Ptr{gw_custom_optimizer_options}, Ptr{Ptr{gw_optimizer}}), model, options, out_optimizer)
gw_optimizer_set_schedule(optimizer, factor, user, release) =
    ccall(ADDRESSES[297], gw_status, (Ptr{gw_optimizer}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}), optimizer, factor, user, release)
gw_batch_init(batch, size) =
    ccall(ADDRESSES[298], Cvoid, (Ptr{gw_batch}, Csize_t), batch, size)
gw_step_options_init(options, size) =
    ccall(ADDRESSES[299], Cvoid, (Ptr{gw_step_options}, Csize_t), options, size)
gw_step_result_init(result, size) =
    ccall(ADDRESSES[300], Cvoid, (Ptr{gw_step_result}, Csize_t), result, size)
gw_train_step(model, optimizer, batch, options, stream, result) =
    ccall(ADDRESSES[301], gw_status, (Ptr{gw_module}, Ptr{gw_optimizer}, Ptr{gw_batch}, Ptr{gw_step_options}, Ptr{Cvoid}, Ptr{gw_step_result}), model, optimizer, batch, options, stream, result)
gw_module_gradient_norms(model, out_norms, out_capacity, out_count) =
    ccall(ADDRESSES[302], gw_status, (Ptr{gw_module}, Ptr{Cdouble}, Csize_t, Ptr{Csize_t}), model, out_norms, out_capacity, out_count)
gw_eval_step(model, batch, options, stream, result) =
    ccall(ADDRESSES[303], gw_status, (Ptr{gw_module}, Ptr{gw_batch}, Ptr{gw_step_options}, Ptr{Cvoid}, Ptr{gw_step_result}), model, batch, options, stream, result)
gw_optimizer_step(optimizer, options, stream, result) =
    ccall(ADDRESSES[304], gw_status, (Ptr{gw_optimizer}, Ptr{gw_step_options}, Ptr{Cvoid}, Ptr{gw_step_result}), optimizer, options, stream, result)
gw_log_probs(model, batch, options, stream, out_log_probs, out_capacity, out_count) =
    ccall(ADDRESSES[305], gw_status, (Ptr{gw_module}, Ptr{gw_batch}, Ptr{gw_step_options}, Ptr{Cvoid}, Ptr{Cdouble}, Csize_t, Ptr{Csize_t}), model, batch, options, stream, out_log_probs, out_capacity, out_count)
gw_generate_options_init(options, size) =
    ccall(ADDRESSES[306], Cvoid, (Ptr{gw_generate_options}, Csize_t), options, size)
gw_generate(model, prompt, prompt_count, options, stream, out_tokens, out_capacity, out_count) =
    ccall(ADDRESSES[307], gw_status, (Ptr{gw_module}, Ptr{Int64}, Csize_t, Ptr{gw_generate_options}, Ptr{Cvoid}, Ptr{Int64}, Csize_t, Ptr{Csize_t}), model, prompt, prompt_count, options, stream, out_tokens, out_capacity, out_count)
gw_generate_rows(model, prompts, lengths, row_count, options, stream, out_tokens, out_capacity, out_counts) =
    ccall(ADDRESSES[308], gw_status, (Ptr{gw_module}, Ptr{Int64}, Ptr{Int64}, Csize_t, Ptr{gw_generate_options}, Ptr{Cvoid}, Ptr{Int64}, Csize_t, Ptr{Int64}), model, prompts, lengths, row_count, options, stream, out_tokens, out_capacity, out_counts)
gw_verify_options_init(options, size) =
    ccall(ADDRESSES[309], Cvoid, (Ptr{gw_verify_options}, Csize_t), options, size)
gw_verify_result_init(result, size) =
    ccall(ADDRESSES[310], Cvoid, (Ptr{gw_verify_result}, Csize_t), result, size)
gw_verify(gangs, build, user, batch, options, result) =
    ccall(ADDRESSES[311], gw_status, (Ptr{gw_gangs}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{gw_batch}, Ptr{gw_verify_options}, Ptr{gw_verify_result}), gangs, build, user, batch, options, result)
gw_verify_groups(gangs, step, user, options, result) =
    ccall(ADDRESSES[312], gw_status, (Ptr{gw_gangs}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{gw_verify_options}, Ptr{gw_verify_result}), gangs, step, user, options, result)
gw_data_source_init(source, size) =
    ccall(ADDRESSES[313], Cvoid, (Ptr{gw_data_source}, Csize_t), source, size)
gw_dataset_options_init(options, size) =
    ccall(ADDRESSES[314], Cvoid, (Ptr{gw_dataset_options}, Csize_t), options, size)
gw_dataset_create(options, out_dataset) =
    ccall(ADDRESSES[315], gw_status, (Ptr{gw_dataset_options}, Ptr{Ptr{gw_dataset}}), options, out_dataset)
gw_dataset_retain(dataset) =
    ccall(ADDRESSES[316], Ptr{gw_dataset}, (Ptr{gw_dataset},), dataset)
gw_dataset_release(dataset) =
    ccall(ADDRESSES[317], Cvoid, (Ptr{gw_dataset},), dataset)
gw_data_batch_init(batch, size) =
    ccall(ADDRESSES[318], Cvoid, (Ptr{gw_data_batch}, Csize_t), batch, size)
gw_dataset_next(dataset, gangs, global_batch, batch) =
    ccall(ADDRESSES[319], gw_status, (Ptr{gw_dataset}, Ptr{gw_gangs}, Int64, Ptr{gw_data_batch}), dataset, gangs, global_batch, batch)
gw_dataset_rows_per_epoch(dataset, out_rows) =
    ccall(ADDRESSES[320], gw_status, (Ptr{gw_dataset}, Ptr{Int64}), dataset, out_rows)
gw_dataset_rows_taken(dataset, out_rows) =
    ccall(ADDRESSES[321], gw_status, (Ptr{gw_dataset}, Ptr{Int64}), dataset, out_rows)
gw_dataset_batches_taken(dataset, out_batches) =
    ccall(ADDRESSES[322], gw_status, (Ptr{gw_dataset}, Ptr{Int64}), dataset, out_batches)
gw_dataset_set_rows_taken(dataset, rows) =
    ccall(ADDRESSES[323], gw_status, (Ptr{gw_dataset}, Int64), dataset, rows)
gw_dataset_position(dataset, text, capacity, out_len) =
    ccall(ADDRESSES[324], gw_status, (Ptr{gw_dataset}, Ptr{Cchar}, Csize_t, Ptr{Csize_t}), dataset, text, capacity, out_len)
gw_dataset_restore(dataset, position, ignore_differences) =
    ccall(ADDRESSES[325], gw_status, (Ptr{gw_dataset}, Ptr{Cchar}, Int32), dataset, position, ignore_differences)
gw_metrics_row_init(row, size) =
    ccall(ADDRESSES[326], Cvoid, (Ptr{gw_metrics_row}, Csize_t), row, size)
gw_metrics_options_init(options, size) =
    ccall(ADDRESSES[327], Cvoid, (Ptr{gw_metrics_options}, Csize_t), options, size)
gw_metrics_create(model, options, out_metrics) =
    ccall(ADDRESSES[328], gw_status, (Ptr{gw_module}, Ptr{gw_metrics_options}, Ptr{Ptr{gw_metrics}}), model, options, out_metrics)
gw_metrics_retain(metrics) =
    ccall(ADDRESSES[329], Ptr{gw_metrics}, (Ptr{gw_metrics},), metrics)
gw_metrics_release(metrics) =
    ccall(ADDRESSES[330], Cvoid, (Ptr{gw_metrics},), metrics)
gw_metrics_step_init(step, size) =
    ccall(ADDRESSES[331], Cvoid, (Ptr{gw_metrics_step}, Csize_t), step, size)
gw_metrics_log(metrics, result, step) =
    ccall(ADDRESSES[332], gw_status, (Ptr{gw_metrics}, Ptr{gw_step_result}, Ptr{gw_metrics_step}), metrics, result, step)
gw_metrics_latest(metrics, row, out_rows) =
    ccall(ADDRESSES[333], gw_status, (Ptr{gw_metrics}, Ptr{gw_metrics_row}, Ptr{Int64}), metrics, row, out_rows)
gw_metrics_log_evaluation(metrics, loss, seconds) =
    ccall(ADDRESSES[334], gw_status, (Ptr{gw_metrics}, Cdouble, Cdouble), metrics, loss, seconds)
gw_metrics_flush(metrics) =
    ccall(ADDRESSES[335], gw_status, (Ptr{gw_metrics},), metrics)
gw_metrics_position(metrics, text, capacity, out_len) =
    ccall(ADDRESSES[336], gw_status, (Ptr{gw_metrics}, Ptr{Cchar}, Csize_t, Ptr{Csize_t}), metrics, text, capacity, out_len)
gw_metrics_restore(metrics, position) =
    ccall(ADDRESSES[337], gw_status, (Ptr{gw_metrics}, Ptr{Cchar}), metrics, position)
gw_plan_options_init(options, size) =
    ccall(ADDRESSES[338], Cvoid, (Ptr{gw_plan_options}, Csize_t), options, size)
gw_plan_memory(options, memory, out_rank) =
    ccall(ADDRESSES[339], gw_status, (Ptr{gw_plan_options}, Ptr{gw_memory_use}, Ptr{Int32}), options, memory, out_rank)

end
