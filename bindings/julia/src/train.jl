# What optimizers do, training steps, evaluation, text generation.

"Steps taken."
function steps(optimizer::Optimizer)
    out = Ref{Int64}(0)
    check(LibGangway.gw_optimizer_steps(optimizer, out))
    return Int(out[])
end
"For checkpoints of your own; every rank must set the same."
steps!(optimizer::Optimizer, steps) = check(LibGangway.gw_optimizer_set_steps(optimizer, steps))
"The learning rate of the next step, before rules."
function learning_rate(optimizer::Optimizer)
    out = Ref{Cdouble}(0)
    @waits LibGangway.gw_optimizer_lr(optimizer, out)  # a schedule of the caller's own is a callback
    return out[]
end
"A new base rate; every rank must set the same."
learning_rate!(optimizer::Optimizer, lr) = check(LibGangway.gw_optimizer_set_lr(optimizer, lr))

"The factor of the loss in the next step; 1: none. Own loops start their backward from it over N, by `Frame(model; loss_scale)`."
function loss_scale(optimizer::Optimizer)
    out = Ref{Cdouble}(0)
    check(LibGangway.gw_optimizer_loss_scale(optimizer, out))
    return out[]
end
"Another one, fixed or dynamic as it is; every rank must set the same, between step and backward."
loss_scale!(optimizer::Optimizer, scale) = check(LibGangway.gw_optimizer_set_loss_scale(optimizer, scale))

"The rate that the schedule multiplies."
function base_learning_rate(optimizer::Optimizer)
    out = Ref{Cdouble}(0)
    check(LibGangway.gw_optimizer_base_lr(optimizer, out))
    return out[]
end
"Finite steps in a row since a dynamic loss scale changed."
function finite_steps(optimizer::Optimizer)
    out = Ref{Int64}(0)
    check(LibGangway.gw_optimizer_finite_steps(optimizer, out))
    return Int(out[])
end
"For checkpoints of your own: the loss scale with its counter."
restore_loss_scale!(optimizer::Optimizer, scale, finite_steps) =
    check(LibGangway.gw_optimizer_restore_loss_scale(optimizer, scale, finite_steps))
"Exchanges the parameters and their averages (`ema_decay`), for an evaluation or a save; a second call swaps back, and no step is
taken before. Collective."
swap_ema!(optimizer::Optimizer) = @waits LibGangway.gw_optimizer_swap_ema(optimizer, NO_STREAM)

"Scales the local gradients so that their norm is at most `max_norm`; returns the norm before it. Collective."
function clip_grad_norm!(model::Model, max_norm; p = 2)
    out = Ref{Cdouble}(0)
    @waits LibGangway.gw_clip_grad_norm(model, max_norm, p, NO_STREAM, out)
    return out[]
end
"Empties the local gradients."
zero_grad!(model::Model) = @waits LibGangway.gw_zero_grad(model, NO_STREAM)

const SKIP_REASONS = (:none, :no_weight, :non_finite)

function step_result(ask)
    found = facts(LibGangway.gw_step_result, ask)
    reason = found.skip_reason
    name = 0 <= reason < length(SKIP_REASONS) ? SKIP_REASONS[reason+1] : :unknown
    return merge(found, (skipped = found.skipped != 0, skip_reason = name, stop = found.stop != 0))
end

# A batch from arrays whose last dim is the rows. It keeps their views.
function batch_of(call, inputs, targets, keywords)
    batch = options(LibGangway.gw_batch, call, keywords)
    ins, outs = views(call, "inputs", arrays_of(inputs)), views(call, "targets", arrays_of(targets))
    push!(batch.roots, ins, outs)
    for (field, list, count) in ((:inputs, ins, :input_count), (:targets, outs, :target_count))
        set_field!(batch, field, pointer(list.list))
        set_field!(batch, count, length(list))
    end
    return batch
end

# The batch and the options of a step.
function step_arguments(call, inputs, targets, keywords)
    its, step_keywords = split_keywords(call, keywords, LibGangway.gw_batch, LibGangway.gw_step_options)
    return batch_of(call, inputs, targets, its), options(LibGangway.gw_step_options, call, step_keywords)
end

# The result of `step(batch, options, result)`.
function run_batch_step(step, call, inputs, targets, keywords)
    batch, made = step_arguments(call, inputs, targets, keywords)
    return GC.@preserve batch made step_result(result -> (@waits step(batch, made, result)))
end

"""
    train_step!(model, optimizer, inputs, targets = nothing; weight = -1, shift_labels = false, documents = nothing,
                positions = nothing, microbatches = 1, max_grad_norm = 0, stop = false, ...)

One step: forward and backward of each microbatch, gradients summed over all ranks, clip, optimizer. `inputs` and `targets`
are one array or a tuple of them, whose last dim is the rows of this rank's data coordinate. Without targets, a language model's
labels are its next tokens. Labels that are given are used as they are: `labels[i]` is what `tokens[i]` must predict, -100 does
not count. With `shift_labels` they lie over their own tokens, as Hugging Face's collators make them, and the library shifts
them. `documents` is for rows that hold several: a number for each token (`Int32` or `Int64`, on the host, of the size of the
tokens). Consecutive tokens with one number are a document, which attention does not leave; a negative number is padding. Labels
that the library makes or shifts do not count at the last token of a document. `positions`, likewise, are those of the tokens;
without them they count from 0 in each document. The result has `loss` (the global mean), `grad_norm`,
`tokens_per_second`, `seconds`, `wait_seconds`, `lr`, `weight`, `step`, `skipped`, `skip_reason`, `loss_scale`, `tokens` (of
the batches of all data ranks, padding included), `stop`. With `stop` this rank asks all ranks to stop after this step, which runs as
usual; the result's `stop` is then true on every rank. With `replay` loss and gradients are computed twice, and other bits are a
mismatch; with `gradient_norms` the step computes what [`Gangway.gradient_norms`](@ref) gives. Collective.
"""
train_step!(model::Model, optimizer::Optimizer, inputs, targets = nothing; keywords...) =
    run_batch_step("train_step!", inputs, targets, values(keywords)) do batch, made, result
        LibGangway.gw_train_step(model, optimizer, batch, made, NO_STREAM, result)
    end

"The norms of the gradients of the last step with `gradient_norms = true`, by parameter name: over all ranks, unscaled and before
clipping; NaN without a gradient."
function gradient_norms(model::Model)
    count = Ref{Csize_t}(0)
    check(LibGangway.gw_module_gradient_norms(model, C_NULL, 0, count))
    norms = Vector{Float64}(undef, count[])
    check(LibGangway.gw_module_gradient_norms(model, norms, length(norms), count))
    return Dict(describe(p).name => norm for (p, norm) in zip(parameters(model), norms))
end

"The loss of a batch; saves and changes nothing. Arguments and result as in `train_step!`. Collective."
eval_step(model::Model, inputs, targets = nothing; keywords...) =
    run_batch_step("eval_step", inputs, targets, values(keywords)) do batch, made, result
        LibGangway.gw_eval_step(model, batch, made, NO_STREAM, result)
    end

"The optimizer's half for own loops: `step!(optimizer; scale = 1 / items, max_grad_norm = 1)` divides by the loss scale,
scales, clips, steps, clears."
function step!(optimizer::Optimizer; keywords...)
    made = options(LibGangway.gw_step_options, "step!", keywords)
    return step_result(result -> (@waits LibGangway.gw_optimizer_step(optimizer, made, NO_STREAM, result)))
end

"""
    log_probs(model, inputs, targets = nothing; keywords...)

The log-probability that a decoder gives each label, in the shape of the labels; 0 where a label does not count. The keywords are
those of `train_step!`. The gradients of a loss of these numbers are those of a `train_step!` of the same labels with
`token_weights`, which are the negative derivatives of the loss by them, and with the number of rows or pairs as `weight`.
Collective.
"""
function log_probs(model::Model, inputs, targets = nothing; keywords...)
    batch, made = step_arguments("log_probs", inputs, targets, values(keywords))
    out = zeros(Float64, size(first(arrays_of(targets === nothing ? inputs : targets))))
    count = Ref{Csize_t}(0)
    GC.@preserve batch made @waits LibGangway.gw_log_probs(model, batch, made, NO_STREAM, out, length(out), count)
    return out
end

"""
    generate(model, ids; token_count = 64, temperature = 1, top_k, top_p, min_p, repetition_penalty, stop_tokens, seed)
    generate(model, [ids, more_ids]; keywords...)

Continues a prompt (token ids) by a decoder, or several prompts, whose lengths may differ. Collective.
"""
function generate(model::Model, prompts::AbstractVector{<:AbstractVector}; keywords...)
    made = options(LibGangway.gw_generate_options, "generate", keywords)
    lengths = Int64[length(prompt) for prompt in prompts]
    ids = Int64[id for prompt in prompts for id in prompt]
    count = max(made[].token_count, 0)
    out, counts = Vector{Int64}(undef, count * length(prompts)), Vector{Int64}(undef, length(prompts))
    @waits LibGangway.gw_generate_rows(model, ids, lengths, length(lengths), made, NO_STREAM, out, length(out), counts)
    return [out[(row-1)*count+1:(row-1)*count+counts[row]] for row in eachindex(counts)]
end

function generate(model::Model, prompt; keywords...)
    made = options(LibGangway.gw_generate_options, "generate", keywords)
    ids = collect(Int64, prompt)
    out = Vector{Int64}(undef, max(made[].token_count, 0))
    count = Ref{Csize_t}(0)
    @waits LibGangway.gw_generate(model, ids, length(ids), made, NO_STREAM, out, length(out), count)
    return resize!(out, count[])
end
