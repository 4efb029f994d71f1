// Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit.
//! The optimizers, and the schedules of their learning rates.
use crate::optim::{optimizer_kinds, Optimizer, Rule};
use crate::options::{open_enum, options, with_rules};

open_enum! {
    /// How the learning rate goes on after its warm-up.
    Schedule {
        /// The full rate.
        Constant = GW_CONSTANT,
        /// The full rate, then an even fall to last_lr_ratio in the last decay_steps of total_steps.
        Linear = GW_LINEAR,
        /// As linear, the fall being half a cosine.
        Cosine = GW_COSINE,
        /// Warm-up, stable, decay: as linear, but decay_steps is a tenth of total_steps unless it is given.
        Wsd = GW_WSD,
        /// As wsd, the fall being 1 - sqrt.
        WsdSqrt = GW_WSD_SQRT,
        /// The root of warmup_steps over the steps taken, not below last_lr_ratio; needs a warm-up.
        InverseSqrt = GW_INVERSE_SQRT,
    }
}

options! {
    /// Options of [`Adafactor`].
    AdafactorOptions = gw_adafactor_options, gw_adafactor_options_init {
        /// Learning rate. Default 1e-2, in [0, inf).
        lr: f64,
        /// Step t has weight t^beta2_decay in the averages. Default -0.8, in [-1, 0].
        beta2_decay: f64,
        /// Least root mean square of a parameter, by which its rate is multiplied. Default 1e-3, in (0, 1).
        eps: f64,
        /// An update with a greater root mean square is scaled down to it. Default 1, in [1, inf).
        clip_threshold: f64,
        /// Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0, in [0,
        /// inf).
        weight_decay: f64,
        /// How the learning rate goes on after the warm-up. Default constant.
        schedule: Schedule,
        /// Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
        /// Default 0, in [0, 1).
        ema_decay: f64,
        /// Steps in which the rate rises from 0. Default 0.
        warmup_steps: i64,
        /// Where the decay of the rate ends. Default 0.
        total_steps: i64,
        /// The rate after total_steps, as a part of lr. Default 0, in [0, 1].
        last_lr_ratio: f64,
        /// Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default
        /// 0.
        decay_steps: i64,
        /// 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0.
        loss_scale: f64,
        /// Where a dynamic scale starts; 1 to 2^24. Default 65536.
        initial_loss_scale: f64,
        /// Finite steps in a row that double a dynamic scale; at least 1. Default 2000.
        loss_scale_interval: i64,
    } with {
        /// By name pattern; the last match wins.
        rules: Vec<Rule> = Vec::new(),
    }
}

options! {
    /// Options of [`AdamW`].
    AdamWOptions = gw_adamw_options, gw_adamw_options_init {
        /// Learning rate. Default 1e-3, in [0, inf).
        lr: f64,
        /// Decay of the average of the gradient. Default 0.9, in [0, 1).
        beta1: f64,
        /// Decay of the average of the squared gradient. Default 0.999, in [0, 1).
        beta2: f64,
        /// Added to the root of that average. Default 1e-8, in (0, 1).
        eps: f64,
        /// Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0, in [0,
        /// inf).
        weight_decay: f64,
        /// How the learning rate goes on after the warm-up. Default constant.
        schedule: Schedule,
        /// Of both averages: f32 or bf16 (rounded at random, so that a decay near 1 moves them); those of
        /// f64 parameters are f64. Default f32.
        moment_dtype: crate::DType,
        /// Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
        /// Default 0, in [0, 1).
        ema_decay: f64,
        /// Steps in which the rate rises from 0. Default 0.
        warmup_steps: i64,
        /// Where the decay of the rate ends. Default 0.
        total_steps: i64,
        /// The rate after total_steps, as a part of lr. Default 0, in [0, 1].
        last_lr_ratio: f64,
        /// Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default
        /// 0.
        decay_steps: i64,
        /// 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0.
        loss_scale: f64,
        /// Where a dynamic scale starts; 1 to 2^24. Default 65536.
        initial_loss_scale: f64,
        /// Finite steps in a row that double a dynamic scale; at least 1. Default 2000.
        loss_scale_interval: i64,
    } with {
        /// By name pattern; the last match wins.
        rules: Vec<Rule> = Vec::new(),
    }
}

options! {
    /// Options of [`AdamW8bit`].
    AdamW8bitOptions = gw_adamw8bit_options, gw_adamw8bit_options_init {
        /// Learning rate. Default 1e-3, in [0, inf).
        lr: f64,
        /// Decay of the average of the gradient. Default 0.9, in [0, 1).
        beta1: f64,
        /// Decay of the average of the squared gradient. Default 0.999, in [0, 1).
        beta2: f64,
        /// Added to the root of that average. Default 1e-8, in (0, 1).
        eps: f64,
        /// Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0, in [0,
        /// inf).
        weight_decay: f64,
        /// How the learning rate goes on after the warm-up. Default constant.
        schedule: Schedule,
        /// Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
        /// Default 0, in [0, 1).
        ema_decay: f64,
        /// Steps in which the rate rises from 0. Default 0.
        warmup_steps: i64,
        /// Where the decay of the rate ends. Default 0.
        total_steps: i64,
        /// The rate after total_steps, as a part of lr. Default 0, in [0, 1].
        last_lr_ratio: f64,
        /// Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default
        /// 0.
        decay_steps: i64,
        /// 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0.
        loss_scale: f64,
        /// Where a dynamic scale starts; 1 to 2^24. Default 65536.
        initial_loss_scale: f64,
        /// Finite steps in a row that double a dynamic scale; at least 1. Default 2000.
        loss_scale_interval: i64,
    } with {
        /// By name pattern; the last match wins.
        rules: Vec<Rule> = Vec::new(),
    }
}

options! {
    /// Options of [`Lion`].
    LionOptions = gw_lion_options, gw_lion_options_init {
        /// Learning rate. Default 1e-4, in [0, inf).
        lr: f64,
        /// Weight of the average in the direction of a step. Default 0.9, in [0, 1).
        beta1: f64,
        /// Decay of the average of the gradient. Default 0.99, in [0, 1).
        beta2: f64,
        /// Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0, in [0,
        /// inf).
        weight_decay: f64,
        /// How the learning rate goes on after the warm-up. Default constant.
        schedule: Schedule,
        /// Of the average: f32 or bf16 (rounded at random, so that a decay near 1 moves it); that of f64
        /// parameters is f64. Default f32.
        moment_dtype: crate::DType,
        /// Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
        /// Default 0, in [0, 1).
        ema_decay: f64,
        /// Steps in which the rate rises from 0. Default 0.
        warmup_steps: i64,
        /// Where the decay of the rate ends. Default 0.
        total_steps: i64,
        /// The rate after total_steps, as a part of lr. Default 0, in [0, 1].
        last_lr_ratio: f64,
        /// Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default
        /// 0.
        decay_steps: i64,
        /// 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0.
        loss_scale: f64,
        /// Where a dynamic scale starts; 1 to 2^24. Default 65536.
        initial_loss_scale: f64,
        /// Finite steps in a row that double a dynamic scale; at least 1. Default 2000.
        loss_scale_interval: i64,
    } with {
        /// By name pattern; the last match wins.
        rules: Vec<Rule> = Vec::new(),
    }
}

options! {
    /// Options of [`Muon`].
    MuonOptions = gw_muon_options, gw_muon_options_init {
        /// Learning rate. Default 1e-3, in [0, inf).
        lr: f64,
        /// Decay of the average of a matrix's gradient. Default 0.95, in [0, 1).
        momentum: f64,
        /// Iterations of the orthogonalisation. Default 5, in [1, 100).
        ns_steps: i64,
        /// Least norm by which a matrix is divided before them. Default 1e-7, in (0, 1).
        eps: f64,
        /// Factor of the rate of parameters that AdamW steps. Default 1, in [0, inf).
        adamw_lr_scale: f64,
        /// AdamW's decay of the average of the gradient. Default 0.9, in [0, 1).
        beta1: f64,
        /// AdamW's decay of the average of the squared gradient. Default 0.999, in [0, 1).
        beta2: f64,
        /// AdamW adds it to the root of that average. Default 1e-8, in (0, 1).
        adamw_eps: f64,
        /// Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0.1, in [0,
        /// inf).
        weight_decay: f64,
        /// Looks ahead along the momentum. Default true.
        nesterov: bool,
        /// A matrix's rate is lr * 0.2 sqrt(max(rows, columns)), to go with AdamW's; else lr * sqrt(max(1,
        /// rows / columns)). Default false.
        match_rms: bool,
        /// How the learning rate goes on after the warm-up. Default constant.
        schedule: Schedule,
        /// In which matrices are gathered and orthogonalised: f32, or bf16 as PyTorch does; those of f64
        /// parameters are f64. Default f32.
        matrix_dtype: crate::DType,
        /// Of the averages: f32 or bf16; those of f64 parameters are f64. Default f32.
        moment_dtype: crate::DType,
        /// Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
        /// Default 0, in [0, 1).
        ema_decay: f64,
        /// Steps in which the rate rises from 0. Default 0.
        warmup_steps: i64,
        /// Where the decay of the rate ends. Default 0.
        total_steps: i64,
        /// The rate after total_steps, as a part of lr. Default 0, in [0, 1].
        last_lr_ratio: f64,
        /// Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default
        /// 0.
        decay_steps: i64,
        /// 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0.
        loss_scale: f64,
        /// Where a dynamic scale starts; 1 to 2^24. Default 65536.
        initial_loss_scale: f64,
        /// Finite steps in a row that double a dynamic scale; at least 1. Default 2000.
        loss_scale_interval: i64,
    } with {
        /// By name pattern; the last match wins.
        rules: Vec<Rule> = Vec::new(),
    }
}

options! {
    /// Options of [`Sgd`].
    SgdOptions = gw_sgd_options, gw_sgd_options_init {
        /// Learning rate. Default 1e-3, in [0, inf).
        lr: f64,
        /// How much of the velocity a step keeps; 0: plain gradient descent. Default 0, in [0, 1).
        momentum: f64,
        /// Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0, in [0,
        /// inf).
        weight_decay: f64,
        /// Looks ahead along the velocity; needs a momentum. Default false.
        nesterov: bool,
        /// How the learning rate goes on after the warm-up. Default constant.
        schedule: Schedule,
        /// Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
        /// Default 0, in [0, 1).
        ema_decay: f64,
        /// Steps in which the rate rises from 0. Default 0.
        warmup_steps: i64,
        /// Where the decay of the rate ends. Default 0.
        total_steps: i64,
        /// The rate after total_steps, as a part of lr. Default 0, in [0, 1].
        last_lr_ratio: f64,
        /// Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default
        /// 0.
        decay_steps: i64,
        /// 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0.
        loss_scale: f64,
        /// Where a dynamic scale starts; 1 to 2^24. Default 65536.
        initial_loss_scale: f64,
        /// Finite steps in a row that double a dynamic scale; at least 1. Default 2000.
        loss_scale_interval: i64,
    } with {
        /// By name pattern; the last match wins.
        rules: Vec<Rule> = Vec::new(),
    }
}

with_rules! {
    AdafactorOptions.rules => gw_adafactor_options;
    AdamWOptions.rules => gw_adamw_options;
    AdamW8bitOptions.rules => gw_adamw8bit_options;
    LionOptions.rules => gw_lion_options;
    MuonOptions.rules => gw_muon_options;
    SgdOptions.rules => gw_sgd_options;
}

optimizer_kinds! {
    /// Adafactor (Shazeer and Stern, 2018), as torch.optim.Adafactor: a second moment of rows and columns,
    /// and rates relative to the size of the parameter, at most 1 / sqrt(t) at step t. States: `row_var`,
    /// average of the means of a row's squared gradients; 1 in the last dim; `col_var`, average of the means
    /// of a column's squared gradients; 1 in the last dim but one; `variance`, of 1-d parameters: average of
    /// the squared gradient.
    Adafactor(AdafactorOptions) = gw_adafactor_create;
    /// AdamW (Loshchilov and Hutter, 2019): Adam with decoupled weight decay. States: `exp_avg`, moving
    /// average of the gradient; `exp_avg_sq`, moving average of the squared gradient.
    AdamW(AdamWOptions) = gw_adamw_create;
    /// AdamW with averages of 8 bits (Dettmers and others, 2022). 64 elements of a row of the whole tensor
    /// share a scale, their largest magnitude; a code is one of 256 values, of the two next to the number at
    /// random by their distance, so that averages move by less than a code: 0, 1, and seven decades 10^(d -
    /// 6) (0.1 + 0.9 (k + 1/2) / n), d from 0 to 6, k below n, which is 2^d with either sign for the
    /// gradient's average and 2^(d + 1) for that of its square. A tensor parallel cut inside of 64 elements
    /// is refused. Averages of 1-d parameters are f32. States: `exp_avg`, moving average of the gradient:
    /// codes (u8), of 1-d parameters f32; `exp_avg_sq`, moving average of the squared gradient, likewise;
    /// `exp_avg_scale`, largest magnitude of each block of 64 elements of a row of exp_avg;
    /// `exp_avg_sq_scale`, of exp_avg_sq.
    AdamW8bit(AdamW8bitOptions) = gw_adamw8bit_create;
    /// Lion (Chen and others, 2023): steps by the sign of an average, with decoupled weight decay. States:
    /// `exp_avg`, moving average of the gradient.
    Lion(LionOptions) = gw_lion_create;
    /// Muon (Jordan and others, 2024), as torch.optim.Muon: the step of a matrix is its momentum,
    /// orthogonalised. AdamW steps all other parameters, and embeddings and heads, unless a rule says
    /// otherwise (its adamw). States: `momentum_buffer`, of matrices: moving average of the gradient;
    /// `exp_avg`, of the others: moving average of the gradient; `exp_avg_sq`, of the others: moving average
    /// of the squared gradient.
    Muon(MuonOptions) = gw_muon_create;
    /// Stochastic gradient descent, with momentum if wanted. Weight decay is added to the gradient. States:
    /// `momentum`, the velocity; absent where momentum is 0.
    Sgd(SgdOptions) = gw_sgd_create;
}
