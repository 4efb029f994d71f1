//! Built-in layers. All of it is local: they describe.
use crate::error::{check, Result};
use crate::mesh::Gangs;
use crate::module::{raw_gangs, Module};
use crate::options::{c_text, open_enum, options, path_text};
use crate::parallel::ParallelOptions;
use gangway_sys as sys;
use std::path::Path;

open_enum! {
    /// A function of each number, as the activation of a feed-forward layer.
    Activation {
        Silu = GW_ACTIVATION_SILU,
        /// GELU by way of tanh.
        GeluTanh = GW_ACTIVATION_GELU_TANH,
        /// GELU by way of erf.
        Gelu = GW_ACTIVATION_GELU,
        Relu = GW_ACTIVATION_RELU,
        Tanh = GW_ACTIVATION_TANH,
    }
}

open_enum! {
    /// How rotary frequencies are scaled, as `rope_type` of a `config.json` says it.
    RopeScaling {
        Llama3 = GW_ROPE_SCALING_LLAMA3,
        Linear = GW_ROPE_SCALING_LINEAR,
        Yarn = GW_ROPE_SCALING_YARN,
        /// By factors for short sequences, and others for long ones.
        Longrope = GW_ROPE_SCALING_LONGROPE,
    }
}

open_enum! {
    /// RMS norms of q and k, before the rotation.
    QkNorm {
        None = GW_QK_NORM_NONE,
        /// Over each head.
        Head = GW_QK_NORM_HEAD,
        /// Over all heads together.
        Width = GW_QK_NORM_WIDTH,
    }
}

open_enum! {
    /// Where a block has its norms, for each of its halves f.
    BlockNorms {
        /// x + f(norm(x)).
        Before = GW_BLOCK_NORMS_BEFORE,
        /// x + norm(f(x)).
        After = GW_BLOCK_NORMS_AFTER,
        /// x + norm(f(norm(x))).
        Both = GW_BLOCK_NORMS_BOTH,
    }
}

options! {
    /// Every option that a decoder is built from; the defaults are those of the family llama.
    DecoderOptions = gw_decoder_options, gw_decoder_options_init {
        vocab: i64,
        /// `hidden_size`.
        dim: i64,
        layers: i64,
        heads: i64,
        /// 0: heads.
        kv_heads: i64,
        /// 0: dim / heads.
        head_dim: i64,
        /// `intermediate_size`; 0: 8/3 dim up to a multiple of 32.
        ffn: i64,
        max_positions: i64,
        /// 0: none.
        window: i64,
        eps: f64,
        rope_theta: f64,
        /// 1: none, unless `rope_scaling` is `Longrope`.
        rope_factor: f64,
        rope_low_frequency_factor: f64,
        rope_high_frequency_factor: f64,
        rope_original_positions: i64,
        initializer_range: f64,
        qkv_bias: bool,
        /// `o_proj.bias`.
        out_bias: bool,
        mlp_bias: bool,
        /// `lm_head.weight` is `model.embed_tokens.weight`.
        tied: bool,
        qk_norm: QkNorm,
        norms: BlockNorms,
        activation: Activation,
        /// A learned score for each query head.
        sinks: bool,
        /// 1: the weights of norms count from 1.
        norm_offset: f64,
        /// Of the embedding's output; 0: the square root of `dim`.
        embedding_scale: f64,
        /// 0: 1 / sqrt(head_dim).
        score_scale: f64,
        /// 0: none. Scores become cap tanh(score / cap).
        score_cap: f64,
        /// 0: none. Logits become cap tanh(logit / cap).
        logit_cap: f64,
        /// Of layers with the window; 0: `rope_theta`.
        window_rope_theta: f64,
        rope_scaling: RopeScaling,
        rope_truncate: bool,
        /// The part of each head that turns.
        rope_partial: f64,
        /// 0: what YaRN or longrope says.
        rope_attention_factor: f64,
        rope_beta_fast: f64,
        rope_beta_slow: f64,
        rope_mscale: f64,
        rope_mscale_all_dim: f64,
        /// Layer norms with biases, in place of RMS norms.
        layer_norm: bool,
        /// False: down(activation(up(x))).
        gated_mlp: bool,
        /// A vector for each of `max_positions` positions.
        learned_positions: bool,
        /// Of what the first layer gets, in training.
        embedding_dropout: f64,
        /// Of the output of each half of a block, in training.
        residual_dropout: f64,
        /// Of the probabilities of attention. Training has none: it is refused until this is 0.
        attention_dropout: f64,
    } with {
        /// The factors of longrope for short sequences: numbers with spaces between them.
        rope_short_factors: String = String::new(),
        /// Likewise, for long ones.
        rope_long_factors: String = String::new(),
        /// The layers with the window: a letter for each, repeated: `"wwf"` (w: window, f: full attention). Empty: all.
        window_layers: String = String::new(),
        /// The `model_type` of a Hugging Face `config.json`, in whose keys the model is saved.
        family: String = String::from("llama"),
    }
}

options! {
    #[derive(Copy)]
    AttentionOptions = gw_attention_options, gw_attention_options_init {
        /// Required.
        dim: i64,
        /// Required.
        heads: i64,
        /// 0: heads.
        kv_heads: i64,
        /// 0: dim / heads.
        head_dim: i64,
        rope_theta: f64,
        initializer_range: f64,
        /// Of the norms that `qk_norm` makes.
        eps: f64,
        qkv_bias: bool,
        out_bias: bool,
        causal: bool,
        qk_norm: QkNorm,
        /// 0: none.
        window: i64,
        /// 1: the weights of norms count from 1.
        norm_offset: f64,
        /// 0: 1 / sqrt(head_dim).
        score_scale: f64,
        /// 0: none. Scores become cap tanh(score / cap).
        score_cap: f64,
        /// A learned score for each query head.
        sinks: bool,
    }
}

options! {
    #[derive(Copy)]
    FeedForwardOptions = gw_feed_forward_options, gw_feed_forward_options_init {
        /// Required.
        dim: i64,
        /// Required.
        ffn: i64,
        initializer_range: f64,
        activation: Activation,
        bias: bool,
        /// Without a gate: down(activation(up(x))).
        plain: bool,
    }
}

impl DecoderOptions {
    /// Local. The defaults of a model family, by its name: `"qwen3"`.
    ///
    /// # Errors
    /// `NotSupported`: there is no such family; the text names those that there are.
    pub fn of_family(family: &str) -> Result<DecoderOptions> {
        let family = c_text(family, "family")?;
        Self::filled(|raw| unsafe { sys::gw_decoder_options_from_family(family.as_ptr(), raw) })
    }

    /// Local. What the `config.json` of a Hugging Face folder stands for.
    ///
    /// # Errors
    /// - `NotSupported`, with key and value: what the library cannot compute, and any key that it does not
    ///   know, because it may change what the model computes.
    /// - `Corrupt`: a value is of the wrong kind or out of its range.
    /// - `Io`: there is no such folder, or `config.json` is missing.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<DecoderOptions> {
        let folder = path_text(folder.as_ref())?;
        Self::filled(|raw| unsafe { sys::gw_decoder_options_from_folder(folder.as_ptr(), raw) })
    }

    /// Calls with the C struct; its text lives as long as the call.
    pub(crate) fn with_raw<R>(&self, call: impl FnOnce(*const sys::gw_decoder_options) -> R) -> Result<R> {
        let family = c_text(&self.family, "family")?;
        let window_layers = c_text(&self.window_layers, "window_layers")?;
        let short_factors = c_text(&self.rope_short_factors, "rope_short_factors")?;
        let long_factors = c_text(&self.rope_long_factors, "rope_long_factors")?;
        let mut raw = self.raw();
        raw.family = family.as_ptr();
        raw.window_layers = window_layers.as_ptr();
        raw.rope_short_factors = short_factors.as_ptr();
        raw.rope_long_factors = long_factors.as_ptr();
        Ok(call(&raw))
    }

    fn filled(call: impl FnOnce(*mut sys::gw_decoder_options) -> sys::gw_status) -> Result<DecoderOptions> {
        let mut raw = DecoderOptions::default().raw();
        check(call(&mut raw))?;
        let text = |at| unsafe { std::ffi::CStr::from_ptr(at) }.to_string_lossy().into_owned();
        let (family, window_layers) = (text(raw.family), text(raw.window_layers));
        let (rope_short_factors, rope_long_factors) =
            (text(raw.rope_short_factors), text(raw.rope_long_factors));
        Ok(DecoderOptions {
            family,
            window_layers,
            rope_short_factors,
            rope_long_factors,
            ..DecoderOptions::from_raw(raw)
        })
    }
}

/// Names a constructor; what it makes is a [`Module`].
macro_rules! layers {
    ($($(#[$meta:meta])* $name:ident($($argument:ident: $kind:ty),*) = $create:ident($($value:expr),*);)*) => { $(
        $(#[$meta])*
        #[derive(Debug)]
        pub enum $name {}

        impl $name {
            /// # Errors
            /// `InvalidArgument`: an option is out of its range; the text names it.
            #[allow(clippy::new_ret_no_self)]
            pub fn new($($argument: $kind),*) -> Result<Module> {
                let mut handle = std::ptr::null_mut();
                let status = unsafe { sys::$create($($value,)* &mut handle) };
                Module::owned(status, handle)
            }
        }
    )* };
}

layers! {
    /// y = x W^T + b; weight [output_dim, input_dim].
    Linear(input_dim: i64, output_dim: i64, bias: bool) = gw_linear_create(input_dim, output_dim, bias as i32);
    /// As `Linear`, with a bias that is not added (skip_bias_add): {x W^T, b}.
    LinearSkipBiasAdd(input_dim: i64, output_dim: i64) = gw_linear_create(input_dim, output_dim, 2);
    /// Ids i64 to rows of weight [rows, dim].
    Embedding(rows: i64, dim: i64) = gw_embedding_create(rows, dim);
    /// {x} or {x, residual} to {y, sum}.
    RmsNorm(dim: i64, eps: f64) = gw_rmsnorm_create(dim, eps);
    /// {x} or {x, residual} to {y, sum}.
    LayerNorm(dim: i64, eps: f64) = gw_layernorm_create(dim, eps);
    /// A function of each number.
    Activate(activation: Activation) = gw_activation_create(crate::options::Field::write(activation));
    /// In training each number is zero with this probability, and else divided by 1 - probability.
    Dropout(probability: f64) = gw_dropout_create(probability);
    /// Feed-forward with or without a gate.
    FeedForward(options: &FeedForwardOptions) = gw_feed_forward_create(&options.raw());
    /// x [B, S, dim] to the same.
    Attention(options: &AttentionOptions) = gw_attention_create(&options.raw());
    /// SwiGLU.
    Mlp(dim: i64, ffn: i64, bias: bool) = gw_mlp_create(dim, ffn, bias as i32);
    /// Pre-norm block.
    Block(attention: &AttentionOptions, ffn: i64, eps: f64) = gw_block_create(&attention.raw(), ffn, eps);
}

/// Tokens i64 [B, S] to logits [B, S, vocab]; with labels to {loss sum, weight}.
#[derive(Debug)]
pub enum Decoder {}

impl Decoder {
    /// # Errors
    /// - `InvalidArgument`: an option is out of its range; the text names it.
    /// - `NotSupported`: there is no such family.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(options: &DecoderOptions) -> Result<Module> {
        let mut handle = std::ptr::null_mut();
        let status = options.with_raw(|raw| unsafe { sys::gw_decoder_create(raw, &mut handle) })?;
        Module::owned(status, handle)
    }
}

/// Collective. A Hugging Face folder of any family of this library as a model that trains and generates. No
/// gangs: one rank.
///
/// # Errors
/// What [`DecoderOptions::from_folder`], [`Module::parallelize`] and [`Module::load`] fail by.
pub fn from_pretrained<'g>(
    folder: impl AsRef<Path>,
    gangs: impl Into<Option<&'g Gangs>>,
    options: &ParallelOptions,
) -> Result<Module> {
    let folder = path_text(folder.as_ref())?;
    let (gangs, mut handle) = (raw_gangs(gangs), std::ptr::null_mut());
    let status = options
        .with_raw(|raw| unsafe { sys::gw_model_from_folder(gangs, folder.as_ptr(), raw, &mut handle) })?;
    Module::owned(status, handle)
}

/// One after the other; children are "0", "1", ...
#[derive(Debug)]
pub enum Sequential {}

impl Sequential {
    /// # Errors
    /// - `InvalidArgument`: there is no module.
    /// - `InvalidState`: a module is part of another one, or bound to gangs.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(models: Vec<Module>) -> Result<Module> {
        let handles: Vec<_> = models.iter().map(Module::raw).collect();
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_sequential_create(handles.as_ptr(), handles.len(), &mut handle) };
        Module::owned(status, handle)
    }
}
