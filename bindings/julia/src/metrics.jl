# Metrics: the numbers of a training run, in files, as a picture.

export Metrics, log!, log_evaluation!

@handle Metrics gw_metrics "The numbers of a run."

@doc """
    Metrics(model; json_lines, csv, svg, every = 1, sequence = 0, peak_flops = 0)

Adds up the results of steps, and writes a row of them every `every` steps: [`log!`](@ref Gangway.log!). Collective over the gangs of
the model, which it keeps alive.

- `json_lines`, `csv`, `svg`: files that rank 0 writes; `svg` is a picture of the losses, drawn by `flush(metrics)`. A file that is
  there is continued. A line of a step that comes again is cut.
- `sequence`: tokens of a row of the batch, for `mfu`; `peak_flops`: of one rank, in FLOP/s; 0: measured by a short product.
""" Metrics
Metrics(model::Model; keywords...) = take_with(Metrics, LibGangway.gw_metrics_options, "Metrics", keywords) do made, out
    LibGangway.gw_metrics_create(model, made, out)
end
hidden(::Type{LibGangway.gw_metrics_options}) = (:sink, :user, :free_user)

CHOICES[:skip_reason] = (; (name => Int32(i - 1) for (i, name) in enumerate(SKIP_REASONS))...)

# How many rows there were, and the newest.
function latest(metrics)
    rows = Ref{Int64}(0)
    row = facts(LibGangway.gw_metrics_row, out -> check(LibGangway.gw_metrics_latest(metrics, out, rows)))
    return rows[], row
end

# The row that `call` completes, or nothing.
function fresh(call, metrics)
    before, _ = latest(metrics)
    call()
    rows, row = latest(metrics)
    return rows == before ? nothing : row
end

"""
    log!(metrics, result; samples = 0, data_seconds = 0, checkpoint_seconds = 0)

Adds the result of a step. Returns the new row, or nothing where the step completes none: `step`, `tokens`, `samples` of the run so
far; `loss`, `validation_loss`, `grad_norm`, `lr`, `loss_scale` of the last step; `tokens_per_second`, `mfu`, `seconds`,
`data_seconds`, `checkpoint_seconds`, `evaluate_seconds`, `wait_seconds`, `slowest_rank`, `slowest_rank_seconds`, `memory`,
`memory_peak`, `skipped` since the row before. What is absent is NaN. Rows are equal on every rank.

`samples`: rows of the global batch. `data_seconds`: for which the step waited for its batch. `checkpoint_seconds`: for which saves
stopped training since the step before. Collective.
"""
function log!(metrics::Metrics, result; keywords...)
    its = options(LibGangway.gw_step_result, "log!", result)
    step = options(LibGangway.gw_metrics_step, "log!", keywords)
    return fresh(() -> (@waits LibGangway.gw_metrics_log(metrics, its, step)), metrics)
end

"Adds the mean loss of an evaluation and its duration to the next row."
log_evaluation!(metrics::Metrics, loss, seconds = 0) =
    check(LibGangway.gw_metrics_log_evaluation(metrics, loss, seconds))

"At each checkpoint and at the end: completes the row that is not full yet, and returns it, or nothing; draws the picture.
Collective."
Base.flush(metrics::Metrics) = fresh(() -> (@waits LibGangway.gw_metrics_flush(metrics)), metrics)

"The place in the run, which a checkpoint takes: `save(run, model, opt; texts = Dict(\"metrics\" => position(metrics)))`."
Base.position(metrics::Metrics) =
    whole_text((text, capacity, len) -> LibGangway.gw_metrics_position(metrics, text, capacity, len))

"Continues at such a place: `restore!(metrics, Gangway.text(run, \"metrics\"))`. Lines of later steps are cut. Collective."
function restore!(metrics::Metrics, position)
    @waits LibGangway.gw_metrics_restore(metrics, c_text("restore!", "position", position))
    return nothing
end
