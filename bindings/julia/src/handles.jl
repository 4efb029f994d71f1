# Handles: one mutable object for each of the library's, whose finalizer only releases. Collectors finalise in any order;
# the library's children hold their parents.

# A handle's pointer, unless it was given up.
held(kind, ptr) = ptr == C_NULL ? throw(released(kind)) : ptr
released(kind) = InvalidState(LibGangway.GW_E_INVALID_STATE, "the $(nameof(kind)) was released", "", -1, -1, "", 0, "")

macro handle(name, raw, doc)
    release = Symbol(raw, "_release")
    return esc(quote
        $doc
        mutable struct $name
            ptr::Ptr{LibGangway.$raw}
            function $name(ptr::Ptr{LibGangway.$raw})
                made = new(ptr)
                ptr == C_NULL || finalizer(release!, made)
                return made
            end
        end
        function release!(x::$name)
            ptr = getfield(x, :ptr)
            setfield!(x, :ptr, Ptr{LibGangway.$raw}(C_NULL))
            ptr == C_NULL || LibGangway.$release(ptr)
            return nothing
        end
        # ccall keeps the object alive for the call by itself.
        Base.unsafe_convert(::Type{Ptr{LibGangway.$raw}}, x::$name) = held($name, getfield(x, :ptr))
        Base.isopen(x::$name) = getfield(x, :ptr) != C_NULL
    end)
end

@handle Store gw_store "Where ranks meet: `FileStore(folder)` or `Store(put, get, remove)`."
@handle Gang gw_gang "Ranks that act together. `rank(gang)`, `length(gang)`; the collectives take it first."
@handle Work gw_work "A collective in flight: `wait(work)`, `isready(work)`."
@handle Tensor gw_tensor "A tensor of the library; `array(tensor)` is its memory."
@handle Model gw_module "A model or layer: made by `Decoder(...)`, `Llama(...)` and the like, or by `Custom`."
@handle Frame gw_frame "The activations of one forward, kept for its backward."
@handle Param gw_parameter "One parameter or buffer of a model."
@handle Optimizer gw_optimizer """
An optimizer over a model's local shards: `AdamW(model; ...)`, `SGD(model; ...)`. All take these keywords:

- `lr`: the learning rate after a warm-up of `warmup_steps`; `schedule`: `:constant`, or a fall to `last_lr_ratio` of it at
  `total_steps`, as `:linear` and `:cosine`.
- `weight_decay`: leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise.
- `rules`: a list of `(pattern = "**.bias", lr_scale = 0.5, weight_decay = 0, frozen = false, adamw = -1)`, of which the last match wins;
  `*` stands for characters but dots, `**` for any characters.
- `ema_decay`: decay of an average of the parameters, which [`swap_ema!`](@ref) puts in their place; 0: none.
- `loss_scale`: what the loss is multiplied by for backward, and gradients divided by. 0: where a parameter is computed in
  `Float16` a dynamic one, from `initial_loss_scale = 65536`, by the rule of PyTorch's `GradScaler`: a step whose gradients are
  not finite is skipped and halves it, `loss_scale_interval = 2000` finite steps in a row double it; elsewhere none. 1: none.
"""
@handle Bytes gw_bytes "Bytes owned by the library."

# Makes a handle by a call that has an out-parameter.
function take(::Type{H}, call) where {H}
    out = Ref(fieldtype(H, :ptr)(C_NULL))
    return @waits call(out) H(out[])
end

# The same by an option struct that keywords set: `make(options, out)`.
function take_with(make, ::Type{H}, ::Type{T}, call, keywords) where {H,T}
    made = options(T, call, keywords)
    return take(H, out -> make(made, out))
end

"`release!(handles...)`: drops them now, which their finalizers else do. Never waits; a second time does nothing."
release!(handles...) = foreach(release!, handles)
