# Datasets: files of tokens as the batches of a training.

@handle DatasetHandle gw_dataset "The library's side of a dataset."

"""
This rank's rows of one global batch: `train_step!(model, opt, batch)`. Fields: `tokens` and `labels` (`Int64`, size
`(sequence, rows)`; labels are the tokens that follow, -100 where none does), `documents` (`Int32`, with packed documents, else
nothing; -1 where there is padding), `rows` and `rank_rows` (from 0: `first:last` of the training), `label_count`,
`data_seconds`. The arrays are lent until two more batches are taken.
"""
struct DataBatch
    tokens::Any
    labels::Any
    documents::Any
    rows::UnitRange{Int}
    rank_rows::UnitRange{Int}
    label_count::Int
    data_seconds::Float64
    weight::Int
end

"""
    Dataset(paths; weights, format, sequence = 2048, packing = :stream, seed = 0, vocab_size = 0, document_end = -1,
            shuffle = true, read_ahead = 2)

Rows of `sequence` tokens out of files, in an order that depends on the seed alone, and never on the ranks. Each path (a file, a
folder, a pattern) is a source; `weights` are their shares in the rows. `format` (`"u8"`, `"u16"`, `"u32"`, `"llm.c"`,
`"megatron"`, `"npy"`): without it the files' names tell. `packing`: `:stream` (rows of consecutive tokens) or `:documents`
(whole documents packed into rows, which end with the id `document_end`, or as an index says; attention does not cross their
bounds).
"""
struct Dataset
    handle::DatasetHandle
    packed::Bool
    lent::Vector{Any} # the arrays of the last two batches
end

function Dataset(paths; weights = nothing, format = nothing, keywords...)
    listed = paths isa AbstractString ? [paths] : collect(paths)
    weights === nothing || length(weights) == length(listed) ||
        refuse("Dataset: weights has ", length(weights), " numbers, paths ", length(listed))
    made = options(LibGangway.gw_dataset_options, "Dataset", keywords)
    list = LibGangway.gw_data_source[]
    for (i, path) in enumerate(listed)
        share = weights === nothing ? NamedTuple() : (weight = weights[i],)
        source = options(LibGangway.gw_data_source, "Dataset: paths[$i]", merge((path = path, format = format), share))
        push!(made.roots, source)
        push!(list, source[])
    end
    push!(made.roots, list)
    set_field!(made, :sources, pointer(list))
    set_field!(made, :source_count, length(list))
    handle = take(DatasetHandle, out -> LibGangway.gw_dataset_create(made, out))
    return Dataset(handle, made[].packing == LibGangway.GW_PACKING_DOCUMENTS, Any[])
end

Base.isopen(data::Dataset) = isopen(data.handle)
function release!(data::Dataset)
    foreach(arrays -> foreach(give_back!, arrays), data.lent)
    empty!(data.lent)
    release!(data.handle)
end

"""
    next!(data, gangs = nothing; global_batch)

The next `global_batch` rows: those of this rank's data coordinate, as a [`DataBatch`](@ref Gangway.DataBatch). Every rank gives
the same number. Without gangs they are the current ones, else all rows are given. There is no end: a new epoch follows.
"""
function next!(data::Dataset, gangs = nothing; global_batch)
    made = options(LibGangway.gw_data_batch, "next!", ())
    size = number("next!", :global_batch, Int64, global_batch)
    @waits LibGangway.gw_dataset_next(data.handle, maybe(gangs), size, made)
    raw = made[]
    lend(place) = borrow(unsafe_load(place), data.handle, true)
    arrays = (lend(raw.tokens), lend(raw.labels), data.packed ? lend(raw.documents) : nothing)
    push!(data.lent, arrays)
    length(data.lent) > 2 && foreach(give_back!, popfirst!(data.lent))
    return DataBatch(arrays..., raw.first_row:raw.last_row-1, raw.rank_first_row:raw.rank_last_row-1, raw.label_count,
                     raw.data_seconds, unsafe_load(raw.batch).weight)
end

function dataset_number(call, data)
    out = Ref{Int64}(0)
    check(call(data.handle, out))
    return Int(out[])
end
"The rows of all sources."
rows_per_epoch(data::Dataset) = dataset_number(LibGangway.gw_dataset_rows_per_epoch, data)
"The place in the training, over all ranks."
rows_taken(data::Dataset) = dataset_number(LibGangway.gw_dataset_rows_taken, data)
"The batches that were taken, also before a `restore!`."
batches_taken(data::Dataset) = dataset_number(LibGangway.gw_dataset_batches_taken, data)
"Goes elsewhere: to 0 at the beginning of each evaluation."
rows_taken!(data::Dataset, rows) = check(LibGangway.gw_dataset_set_rows_taken(data.handle, rows))

"The place as JSON, the same on every rank."
Base.position(data::Dataset) =
    whole_text((text, capacity, len) -> LibGangway.gw_dataset_position(data.handle, text, capacity, len))
"Goes to such a place. Files and options that decide the order must be as they were, unless `ignore_differences`."
restore!(data::Dataset, position; ignore_differences = false) =
    check(LibGangway.gw_dataset_restore(data.handle, c_text("restore!", "position", position), ignore_differences))

# What a batch of a dataset says of itself in a step.
its_options(batch::DataBatch) = (weight = batch.weight, documents = batch.documents)

train_step!(model::Model, optimizer::Optimizer, batch::DataBatch; keywords...) =
    train_step!(model, optimizer, batch.tokens, batch.labels; its_options(batch)..., keywords...)
eval_step(model::Model, batch::DataBatch; keywords...) =
    eval_step(model, batch.tokens, batch.labels; its_options(batch)..., keywords...)

Base.show(io::IO, data::Dataset) = isopen(data) ?
    print(io, "Dataset(", rows_per_epoch(data), " rows, ", rows_taken(data), " taken)") : print(io, "released Dataset")
Base.show(io::IO, batch::DataBatch) = print(io, "DataBatch(rows ", batch.rank_rows, " of ", batch.rows, ")")
