# Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit.
# The optimizers, and the schedules of their learning rates.

export AdamW, Lion, SGD

CHOICES[:schedule] = (constant = LibGangway.GW_CONSTANT, linear = LibGangway.GW_LINEAR, cosine = LibGangway.GW_COSINE, wsd = LibGangway.GW_WSD, wsd_sqrt = LibGangway.GW_WSD_SQRT, inverse_sqrt = LibGangway.GW_INVERSE_SQRT)

"""
    AdamW(model; lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, moment_dtype = Float32, ...)

AdamW (Loshchilov and Hutter, 2019): Adam with decoupled weight decay.

- `beta1`: decay of the average of the gradient, in [0, 1).
- `beta2`: decay of the average of the squared gradient, in [0, 1).
- `eps`: added to the root of that average, in (0, 1).
- `moment_dtype`: of both averages: f32 or bf16; those of f64 parameters are f64.

The other keywords are those of every [`Optimizer`](@ref). States: `exp_avg`, moving average of the gradient; `exp_avg_sq`, moving average of the squared gradient.
"""
AdamW(model::Model; keywords...) = take_with(Optimizer, LibGangway.gw_adamw_options, "AdamW", keywords) do made, out
    LibGangway.gw_adamw_create(model, made, out)
end
hidden(::Type{LibGangway.gw_adamw_options}) = (:rule_count,)

"""
    Lion(model; lr = 1e-4, beta1 = 0.9, beta2 = 0.99, moment_dtype = Float32, ...)

Lion (Chen and others, 2023): steps by the sign of an average, with decoupled weight decay.

- `beta1`: weight of the average in the direction of a step, in [0, 1).
- `beta2`: decay of the average of the gradient, in [0, 1).
- `moment_dtype`: of the average: f32 or bf16; that of f64 parameters is f64.

The other keywords are those of every [`Optimizer`](@ref). States: `exp_avg`, moving average of the gradient.
"""
Lion(model::Model; keywords...) = take_with(Optimizer, LibGangway.gw_lion_options, "Lion", keywords) do made, out
    LibGangway.gw_lion_create(model, made, out)
end
hidden(::Type{LibGangway.gw_lion_options}) = (:rule_count,)

"""
    SGD(model; lr = 1e-3, momentum = 0, nesterov = false, ...)

Stochastic gradient descent, with momentum if wanted. Weight decay is added to the gradient.

- `momentum`: how much of the velocity a step keeps; 0: plain gradient descent, in [0, 1).
- `nesterov`: looks ahead along the velocity; needs a momentum.

The other keywords are those of every [`Optimizer`](@ref). States: `momentum`, the velocity; absent where momentum is 0.
"""
SGD(model::Model; keywords...) = take_with(Optimizer, LibGangway.gw_sgd_options, "SGD", keywords) do made, out
    LibGangway.gw_sgd_create(model, made, out)
end
hidden(::Type{LibGangway.gw_sgd_options}) = (:rule_count,)
