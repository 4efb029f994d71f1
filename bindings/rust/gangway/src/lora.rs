use crate::error::{check, Result};
use crate::module::{Module, SaveOptions};
use crate::options::{c_text, options, path_text};
use gangway_sys as sys;
use std::path::Path;

options! {
    LoraOptions = gw_lora_options, gw_lora_options_init {
        rank: i64,
        alpha: f64,
        /// Of an adapter's input, in training: in `[0, 1)`.
        dropout: f64,
        /// Of the first values of A; B begins as zeros.
        seed: u64,
        /// The scale is `alpha / sqrt(rank)` instead of `alpha / rank`.
        rank_stabilized: bool,
    } with {
        /// Of module paths, as `**.q_proj`; none: every linear layer but the head.
        patterns: Vec<String> = Vec::new(),
    }
}

/// LoRA: low-rank adapters of linear layers, with the files of PEFT.
impl Module {
    /// Gives linear layers adapters and freezes all other parameters. Call it before
    /// [`Module::parallelize`].
    ///
    /// # Errors
    /// - `InvalidArgument`: an option, or a pattern that matches no layer which can have an adapter.
    /// - `NotFound`: nothing matches a pattern.
    /// - `InvalidState`: the model is wrapped, has adapters already, or is part of another one.
    pub fn lora_apply(&mut self, options: &LoraOptions) -> Result<()> {
        let patterns = c_text(&options.patterns.join(","), "patterns")?;
        let mut raw = options.raw();
        if !options.patterns.is_empty() {
            raw.patterns = patterns.as_ptr();
        }
        check(unsafe { sys::gw_lora_apply(self.raw(), &raw) })
    }

    /// [`Module::lora_apply`] with what the `adapter_config.json` of a PEFT folder says.
    ///
    /// # Errors
    /// As [`Module::lora_apply`], and `Corrupt`, `NotSupported`, `Io`: what the file says.
    pub fn lora_apply_folder(&mut self, folder: impl AsRef<Path>, seed: u64) -> Result<()> {
        let folder = path_text(folder.as_ref())?;
        check(unsafe { sys::gw_lora_apply_folder(self.raw(), folder.as_ptr(), seed) })
    }

    /// Collective. False: the model computes without its adapters, as the reference model of DPO.
    ///
    /// # Errors
    /// - `InvalidState`: a model without adapters.
    /// - `Mismatch`: ranks differ in `on`.
    pub fn lora_enable(&mut self, on: bool) -> Result<()> {
        check(unsafe { sys::gw_lora_enable(self.raw(), on as i32) })
    }

    /// Collective. The files that `PeftModel.from_pretrained` reads, in one commit. `base` is the name or folder
    /// of the base model; none: the folder from which the model was loaded.
    ///
    /// # Errors
    /// As [`Module::save_with`], and `InvalidState`: a model without adapters.
    pub fn lora_save(
        &self,
        folder: impl AsRef<Path>,
        base: Option<&str>,
        options: &SaveOptions,
    ) -> Result<()> {
        let folder = path_text(folder.as_ref())?;
        let base = base.map(|base| c_text(base, "base")).transpose()?;
        let base = base.as_ref().map_or(std::ptr::null(), |base| base.as_ptr());
        check(unsafe { sys::gw_lora_save(self.raw(), folder.as_ptr(), base, &options.raw()) })
    }

    /// Collective, on any mesh. The values of the adapters, from a folder of PEFT.
    ///
    /// # Errors
    /// As [`Module::load_with`], and `InvalidState`: a model without adapters.
    pub fn lora_load(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = path_text(folder.as_ref())?;
        check(unsafe { sys::gw_lora_load(self.raw(), folder.as_ptr()) })
    }

    /// Collective. Adds the adapters to the weights and switches them off, with B zero; [`Module::save`] then
    /// writes a plain folder of Hugging Face.
    ///
    /// # Errors
    /// - `InvalidState`: the adapters are off, a model without adapters, or a forward awaits its backward.
    pub fn lora_merge(&mut self) -> Result<()> {
        check(unsafe { sys::gw_lora_merge(self.raw(), std::ptr::null_mut()) })
    }
}
