// Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit.
// The keys of [optimizer]: of every kind (""), and those of one kind.
#pragma once

namespace gangway::train {

// clang-format off
struct OptimizerKey {
  const char *kind, *name, *standard, *doc;
};
inline constexpr OptimizerKey kOptimizerKeys[] = {
    {"", "lr", "1e-3", "learning rate, in [0, inf)"},
    {"", "weight_decay", "0",
     "leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise, in [0, inf)"},
    {"", "schedule", "constant",
     "how the learning rate goes on after the warm-up: constant, linear, cosine, wsd, wsd_sqrt, inverse_sqrt"},
    {"", "ema_decay", "0",
     "decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none, in [0, 1)"},
    {"", "warmup_steps", "0", "steps in which the rate rises from 0"},
    {"", "total_steps", "0", "where the decay of the rate ends"},
    {"", "last_lr_ratio", "0", "the rate after total_steps, as a part of lr, in [0, 1]"},
    {"", "decay_steps", "0",
     "steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps"},
    {"", "loss_scale", "0",
     "0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none"},
    {"", "initial_loss_scale", "65536", "where a dynamic scale starts; 1 to 2^24"},
    {"", "loss_scale_interval", "2000", "finite steps in a row that double a dynamic scale; at least 1"},
    {"adafactor", "beta2_decay", "-0.8", "step t has weight t^beta2_decay in the averages, in [-1, 0]"},
    {"adafactor", "eps", "1e-3",
     "least root mean square of a parameter, by which its rate is multiplied, in (0, 1)"},
    {"adafactor", "clip_threshold", "1",
     "an update with a greater root mean square is scaled down to it, in [1, inf)"},
    {"adafactor", "lr", "1e-2", "learning rate, in [0, inf)"},
    {"adamw", "beta1", "0.9", "decay of the average of the gradient, in [0, 1)"},
    {"adamw", "beta2", "0.999", "decay of the average of the squared gradient, in [0, 1)"},
    {"adamw", "eps", "1e-8", "added to the root of that average, in (0, 1)"},
    {"adamw", "moment_dtype", "f32",
     "of both averages: f32 or bf16 (rounded at random, so that a decay near 1 moves them); those of f64 parameters are f64, in f32 or bf16"},
    {"adamw8bit", "beta1", "0.9", "decay of the average of the gradient, in [0, 1)"},
    {"adamw8bit", "beta2", "0.999", "decay of the average of the squared gradient, in [0, 1)"},
    {"adamw8bit", "eps", "1e-8", "added to the root of that average, in (0, 1)"},
    {"lion", "beta1", "0.9", "weight of the average in the direction of a step, in [0, 1)"},
    {"lion", "beta2", "0.99", "decay of the average of the gradient, in [0, 1)"},
    {"lion", "moment_dtype", "f32",
     "of the average: f32 or bf16 (rounded at random, so that a decay near 1 moves it); that of f64 parameters is f64, in f32 or bf16"},
    {"lion", "lr", "1e-4", "learning rate, in [0, inf)"},
    {"muon", "momentum", "0.95", "decay of the average of a matrix's gradient, in [0, 1)"},
    {"muon", "ns_steps", "5", "iterations of the orthogonalisation, in [1, 100)"},
    {"muon", "eps", "1e-7", "least norm by which a matrix is divided before them, in (0, 1)"},
    {"muon", "adamw_lr_scale", "1", "factor of the rate of parameters that AdamW steps, in [0, inf)"},
    {"muon", "beta1", "0.9", "AdamW's decay of the average of the gradient, in [0, 1)"},
    {"muon", "beta2", "0.999", "AdamW's decay of the average of the squared gradient, in [0, 1)"},
    {"muon", "adamw_eps", "1e-8", "AdamW adds it to the root of that average, in (0, 1)"},
    {"muon", "nesterov", "true", "looks ahead along the momentum"},
    {"muon", "match_rms", "false",
     "a matrix's rate is lr * 0.2 sqrt(max(rows, columns)), to go with AdamW's; else lr * sqrt(max(1, rows / columns))"},
    {"muon", "matrix_dtype", "f32",
     "in which matrices are gathered and orthogonalised: f32, or bf16 as PyTorch does; those of f64 parameters are f64, in f32 or bf16"},
    {"muon", "moment_dtype", "f32",
     "of the averages: f32 or bf16; those of f64 parameters are f64, in f32 or bf16"},
    {"muon", "weight_decay", "0.1",
     "leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise, in [0, inf)"},
    {"sgd", "momentum", "0", "how much of the velocity a step keeps; 0: plain gradient descent, in [0, 1)"},
    {"sgd", "nesterov", "false", "looks ahead along the velocity; needs a momentum"},
};
// clang-format on

}  // namespace gangway::train
