# Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit.
# The optimizers, and the schedules of their learning rates.

export Adafactor, AdamW, AdamW8bit, Lion, Muon, SGD

CHOICES[:schedule] = (constant = LibGangway.GW_CONSTANT, linear = LibGangway.GW_LINEAR, cosine = LibGangway.GW_COSINE, wsd = LibGangway.GW_WSD, wsd_sqrt = LibGangway.GW_WSD_SQRT, inverse_sqrt = LibGangway.GW_INVERSE_SQRT)

"""
    Adafactor(model; lr = 1e-2, beta2_decay = -0.8, eps = 1e-3, clip_threshold = 1, ...)

Adafactor (Shazeer and Stern, 2018), as torch.optim.Adafactor: a second moment of rows and columns, and rates relative to the size of the parameter, at most 1 / sqrt(t) at step t.

- `beta2_decay`: step t has weight t^beta2_decay in the averages, in [-1, 0].
- `eps`: least root mean square of a parameter, by which its rate is multiplied, in (0, 1).
- `clip_threshold`: an update with a greater root mean square is scaled down to it, in [1, inf).

The other keywords are those of every [`Optimizer`](@ref). States: `row_var`, average of the means of a row's squared gradients; 1 in the last dim; `col_var`, average of the means of a column's squared gradients; 1 in the last dim but one; `variance`, of 1-d parameters: average of the squared gradient.
"""
Adafactor(model::Model; keywords...) = take_with(Optimizer, LibGangway.gw_adafactor_options, "Adafactor", keywords) do made, out
    LibGangway.gw_adafactor_create(model, made, out)
end
hidden(::Type{LibGangway.gw_adafactor_options}) = (:rule_count,)

"""
    AdamW(model; lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, moment_dtype = Float32, ...)

AdamW (Loshchilov and Hutter, 2019): Adam with decoupled weight decay.

- `beta1`: decay of the average of the gradient, in [0, 1).
- `beta2`: decay of the average of the squared gradient, in [0, 1).
- `eps`: added to the root of that average, in (0, 1).
- `moment_dtype`: of both averages: f32 or bf16 (rounded at random, so that a decay near 1 moves them); those of f64 parameters are f64.

The other keywords are those of every [`Optimizer`](@ref). States: `exp_avg`, moving average of the gradient; `exp_avg_sq`, moving average of the squared gradient.
"""
AdamW(model::Model; keywords...) = take_with(Optimizer, LibGangway.gw_adamw_options, "AdamW", keywords) do made, out
    LibGangway.gw_adamw_create(model, made, out)
end
hidden(::Type{LibGangway.gw_adamw_options}) = (:rule_count,)

"""
    AdamW8bit(model; lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, ...)

AdamW with averages of 8 bits (Dettmers and others, 2022). 64 elements of a row of the whole tensor share a scale, their largest magnitude; a code is one of 256 values, of the two next to the number at random by their distance, so that averages move by less than a code: 0, 1, and seven decades 10^(d - 6) (0.1 + 0.9 (k + 1/2) / n), d from 0 to 6, k below n, which is 2^d with either sign for the gradient's average and 2^(d + 1) for that of its square. A tensor parallel cut inside of 64 elements is refused. Averages of 1-d parameters are f32.

- `beta1`: decay of the average of the gradient, in [0, 1).
- `beta2`: decay of the average of the squared gradient, in [0, 1).
- `eps`: added to the root of that average, in (0, 1).

The other keywords are those of every [`Optimizer`](@ref). States: `exp_avg`, moving average of the gradient: codes (u8), of 1-d parameters f32; `exp_avg_sq`, moving average of the squared gradient, likewise; `exp_avg_scale`, largest magnitude of each block of 64 elements of a row of exp_avg; `exp_avg_sq_scale`, of exp_avg_sq.
"""
AdamW8bit(model::Model; keywords...) = take_with(Optimizer, LibGangway.gw_adamw8bit_options, "AdamW8bit", keywords) do made, out
    LibGangway.gw_adamw8bit_create(model, made, out)
end
hidden(::Type{LibGangway.gw_adamw8bit_options}) = (:rule_count,)

"""
    Lion(model; lr = 1e-4, beta1 = 0.9, beta2 = 0.99, moment_dtype = Float32, ...)

Lion (Chen and others, 2023): steps by the sign of an average, with decoupled weight decay.

- `beta1`: weight of the average in the direction of a step, in [0, 1).
- `beta2`: decay of the average of the gradient, in [0, 1).
- `moment_dtype`: of the average: f32 or bf16 (rounded at random, so that a decay near 1 moves it); that of f64 parameters is f64.

The other keywords are those of every [`Optimizer`](@ref). States: `exp_avg`, moving average of the gradient.
"""
Lion(model::Model; keywords...) = take_with(Optimizer, LibGangway.gw_lion_options, "Lion", keywords) do made, out
    LibGangway.gw_lion_create(model, made, out)
end
hidden(::Type{LibGangway.gw_lion_options}) = (:rule_count,)

"""
    Muon(model; lr = 1e-3, momentum = 0.95, ns_steps = 5, eps = 1e-7, adamw_lr_scale = 1, beta1 = 0.9, beta2 = 0.999, adamw_eps = 1e-8, nesterov = true, match_rms = false, matrix_dtype = Float32, moment_dtype = Float32, ...)

Muon (Jordan and others, 2024), as torch.optim.Muon: the step of a matrix is its momentum, orthogonalised. AdamW steps all other parameters, and embeddings and heads, unless a rule says otherwise (its adamw).

- `momentum`: decay of the average of a matrix's gradient, in [0, 1).
- `ns_steps`: iterations of the orthogonalisation, in [1, 100).
- `eps`: least norm by which a matrix is divided before them, in (0, 1).
- `adamw_lr_scale`: factor of the rate of parameters that AdamW steps, in [0, inf).
- `beta1`: AdamW's decay of the average of the gradient, in [0, 1).
- `beta2`: AdamW's decay of the average of the squared gradient, in [0, 1).
- `adamw_eps`: AdamW adds it to the root of that average, in (0, 1).
- `nesterov`: looks ahead along the momentum.
- `match_rms`: a matrix's rate is lr * 0.2 sqrt(max(rows, columns)), to go with AdamW's; else lr * sqrt(max(1, rows / columns)).
- `matrix_dtype`: in which matrices are gathered and orthogonalised: f32, or bf16 as PyTorch does; those of f64 parameters are f64.
- `moment_dtype`: of the averages: f32 or bf16; those of f64 parameters are f64.

The other keywords are those of every [`Optimizer`](@ref). States: `momentum_buffer`, of matrices: moving average of the gradient; `exp_avg`, of the others: moving average of the gradient; `exp_avg_sq`, of the others: moving average of the squared gradient.
"""
Muon(model::Model; keywords...) = take_with(Optimizer, LibGangway.gw_muon_options, "Muon", keywords) do made, out
    LibGangway.gw_muon_create(model, made, out)
end
hidden(::Type{LibGangway.gw_muon_options}) = (:rule_count,)

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
