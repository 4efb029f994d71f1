use crate::error::{check, Result};
use crate::module::Module;
use crate::options::{c_text, open_enum, options};
use gangway_sys as sys;

open_enum! {
    /// What shares a scale in FP8, and where it comes from.
    Fp8Scaling {
        /// A tensor, from its values.
        Tensor = GW_FP8_TENSOR,
        /// A tensor, from the largest magnitude of earlier steps.
        Delayed = GW_FP8_DELAYED,
        /// A row along the dim that is summed, anew for each product.
        Row = GW_FP8_ROW,
    }
}

options! {
    Fp8Options = gw_fp8_options, gw_fp8_options_init {
        scaling: Fp8Scaling,
        /// Steps of `Fp8Scaling::Delayed`, 1 to 4096.
        history: i32,
    } with {
        /// Of module paths, as `model.layers.*.mlp.*`; none: every linear layer but the head.
        patterns: Vec<String> = Vec::new(),
    }
}

/// Linear layers whose products take 8-bit codes.
impl Module {
    /// Makes linear layers compute in FP8. Call it before [`Module::parallelize`]. Scales of whole tensors
    /// depend on the mesh, and so do losses and gradients, within what FP8 rounds.
    ///
    /// # Errors
    /// - `InvalidArgument`: an option, or a pattern that matches no layer which can compute in FP8.
    /// - `NotFound`: nothing matches a pattern.
    /// - `InvalidState`: the model is wrapped already, is part of another one, or a layer computes in FP8.
    pub fn fp8_apply(&mut self, options: &Fp8Options) -> Result<()> {
        let patterns = c_text(&options.patterns.join(","), "patterns")?;
        let mut raw = options.raw();
        if !options.patterns.is_empty() {
            raw.patterns = patterns.as_ptr();
        }
        check(unsafe { sys::gw_fp8_apply(self.raw(), &raw) })
    }
}
