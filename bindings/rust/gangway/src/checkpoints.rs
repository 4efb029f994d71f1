//! The checkpoints of a run: everything that changes the next step.
use crate::element::DType;
use crate::error::{check, made, Result};
use crate::mesh::Gangs;
use crate::module::{raw_gangs, Module};
use crate::optim::Optimizer;
use crate::options::{c_text, initialised, options, path_text, read_text, text_pointer};
use gangway_sys as sys;
use std::ffi::CString;
use std::fmt;
use std::path::Path;
use std::ptr::NonNull;

options! {
    CheckpointsOptions = gw_checkpoints_options, gw_checkpoints_options_init {
        /// [`Checkpoints::due`] says yes at multiples; 0: never.
        every: i64,
        /// Of a safetensors file; 0: no limit.
        max_file_bytes: i64,
        /// Of the writing of one save.
        timeout_ms: i64,
        /// The newest complete ones stay; 0: all.
        keep: i32,
        /// [`Checkpoints::save`] returns after the commit, and needs no memory for a copy.
        synchronous: bool,
        /// Of the model's files; `DType::NONE`: the masters'.
        model_dtype: DType,
    } with {
        /// Names the holder of the folder; none: host and process.
        job: Option<String> = None,
    }
}

options! {
    #[derive(Copy)]
    RestoreOptions = gw_restore_options, gw_restore_options_init {
        /// -1: the newest complete one.
        step: i64,
        /// Reads the rows alone, and verifies no hashes.
        no_verify: bool,
        /// What has no place, or no value, is left out and noted.
        partial: bool,
    }
}

/// A model with its optimizer, to be saved by name. The part "" lies in the checkpoint's folder itself.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointPart<'a> {
    pub name: &'a str,
    pub model: &'a Module,
    pub optimizer: Option<&'a Optimizer>,
    /// A folder whose tokenizer and generation files are copied into the checkpoint.
    pub carry_from: Option<&'a Path>,
}

/// A model with its optimizer, to be restored by name.
#[derive(Debug)]
pub struct CheckpointPartMut<'a> {
    pub name: &'a str,
    pub model: &'a mut Module,
    pub optimizer: Option<&'a mut Optimizer>,
}

/// What a save writes besides its parts. Step, tokens and texts are equal on all ranks; rank 0's user bytes
/// are saved.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckpointState<'a> {
    /// Batches taken; names the checkpoint.
    pub step: i64,
    /// Seen by the model.
    pub tokens: i64,
    /// By name: the position of a data set, for example.
    pub texts: &'a [(&'a str, &'a str)],
    pub user: &'a [u8],
}

/// What a checkpoint had besides the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    pub step: i64,
    pub tokens: i64,
    pub user: Vec<u8>,
    /// A line for each thing that the restore did not take over: "lr: 0.001 in the checkpoint, 0.002 now".
    pub notes: Vec<String>,
}

/// The folder of a run, which one job holds at a time. Dropping it waits until a save in progress has ended.
pub struct Checkpoints(NonNull<sys::gw_checkpoints>);

// One thread at a time.
unsafe impl Send for Checkpoints {}

/// The texts of a part live as long as its C struct.
struct RawParts {
    raw: Vec<sys::gw_checkpoint_part>,
    _texts: Vec<CString>,
}

impl RawParts {
    fn new<'a>(
        parts: impl Iterator<Item = (&'a str, *mut sys::gw_module, *mut sys::gw_optimizer, Option<&'a Path>)>,
    ) -> Result<RawParts> {
        let mut all = RawParts { raw: Vec::new(), _texts: Vec::new() };
        for (name, model, optimizer, carry_from) in parts {
            let mut raw = initialised!(gw_checkpoint_part, gw_checkpoint_part_init);
            let name = c_text(name, "name")?;
            let folder = carry_from.map(path_text).transpose()?;
            (raw.name, raw.carry_from) = (name.as_ptr(), text_pointer(&folder));
            (raw.model, raw.optimizer) = (model, optimizer);
            all.raw.push(raw);
            all._texts.push(name);
            all._texts.extend(folder);
        }
        Ok(all)
    }
}

fn raw_optimizer(optimizer: Option<&Optimizer>) -> *mut sys::gw_optimizer {
    optimizer.map_or(std::ptr::null_mut(), Optimizer::raw)
}

impl Checkpoints {
    /// Collective. Opens the folder of a run, and makes it if it is missing. No gangs: the thread's current
    /// ones, else one rank.
    ///
    /// # Errors
    /// - `InvalidArgument`: an option is out of its range.
    /// - `InvalidState`: another job holds the folder; the text says which.
    /// - `NotSupported`: a fake gang of several ranks.
    /// - `Io`: the folder cannot be made or written.
    pub fn new<'g>(
        folder: impl AsRef<Path>,
        gangs: impl Into<Option<&'g Gangs>>,
        options: &CheckpointsOptions,
    ) -> Result<Checkpoints> {
        let folder = path_text(folder.as_ref())?;
        let job = options.job.as_deref().map(|job| c_text(job, "job")).transpose()?;
        let mut raw = options.raw();
        raw.job = text_pointer(&job);
        let mut handle = std::ptr::null_mut();
        let status =
            unsafe { sys::gw_checkpoints_create(raw_gangs(gangs), folder.as_ptr(), &raw, &mut handle) };
        Ok(Checkpoints(made(status, handle)?))
    }

    fn raw(&self) -> *mut sys::gw_checkpoints {
        self.0.as_ptr()
    }

    /// Local. Whether `step` is a multiple of `every`.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn due(&self, step: i64) -> Result<bool> {
        let mut due = 0;
        check(unsafe { sys::gw_checkpoints_due(self.raw(), step, &mut due) })?;
        Ok(due != 0)
    }

    /// Collective. Returns when the values are copied; a thread writes them beside training. First waits for
    /// the save before, and returns its error.
    ///
    /// # Errors
    /// - `InvalidState`: a forward awaits its backward, a model has no memory, or another job has taken the
    ///   folder.
    /// - `InvalidArgument`: a part or a text.
    /// - `OutOfMemory`: there is no memory for the copy.
    /// - `Mismatch`: ranks have different states.
    /// - `Io`, on every rank with one text: a full disk and so on. It is the error of the save before, unless
    ///   the options say `synchronous`.
    pub fn save(&mut self, parts: &[CheckpointPart<'_>], state: &CheckpointState<'_>) -> Result<()> {
        let parts = RawParts::new(
            parts.iter().map(|p| (p.name, p.model.raw(), raw_optimizer(p.optimizer), p.carry_from)),
        )?;
        let names = crate::options::c_texts(state.texts.iter().map(|text| text.0), "name")?;
        let values = crate::options::c_texts(state.texts.iter().map(|text| text.1), "text")?;
        let texts = names.iter().zip(&values).map(|(name, text)| {
            let mut raw = initialised!(gw_checkpoint_text, gw_checkpoint_text_init);
            (raw.name, raw.text) = (name.as_ptr(), text.as_ptr());
            raw
        });
        let texts: Vec<_> = texts.collect();
        let mut raw = initialised!(gw_checkpoint_state, gw_checkpoint_state_init);
        (raw.step, raw.tokens) = (state.step, state.tokens);
        (raw.texts, raw.text_count) = (texts.as_ptr(), texts.len());
        (raw.user, raw.user_size) = (state.user.as_ptr().cast(), state.user.len());
        check(unsafe { sys::gw_checkpoints_save(self.raw(), parts.raw.as_ptr(), parts.raw.len(), &raw) })
    }

    /// Collective. Waits until the last save has ended, and returns its error, once.
    ///
    /// # Errors
    /// The error of the last save, as [`Checkpoints::save`] lists it.
    pub fn wait(&mut self) -> Result<()> {
        check(unsafe { sys::gw_checkpoints_wait(self.raw()) })
    }

    /// Collective. Restores the newest complete checkpoint, or that of a step, on any mesh; none: there is
    /// none.
    ///
    /// # Errors
    /// - `NotFound`: there is no checkpoint of the step, or a part, parameter or state is missing.
    /// - `InvalidArgument`: another shape, dtype, `config.json` or kind of optimizer.
    /// - `Corrupt` names file and tensor.
    /// - `Io`: a file vanishes or changes while it is read. Only then values may be undefined.
    pub fn restore(
        &mut self,
        parts: &mut [CheckpointPartMut<'_>],
        options: &RestoreOptions,
    ) -> Result<Option<Restored>> {
        let parts = RawParts::new(
            parts.iter().map(|p| (p.name, p.model.raw(), raw_optimizer(p.optimizer.as_deref()), None)),
        )?;
        let (mut step, mut tokens) = (0, 0);
        check(unsafe {
            let (raw, count) = (parts.raw.as_ptr(), parts.raw.len());
            sys::gw_checkpoints_restore(self.raw(), raw, count, &options.raw(), &mut step, &mut tokens)
        })?;
        if step < 0 {
            return Ok(None);
        }
        let notes = read_text(|text, capacity, length| unsafe {
            sys::gw_checkpoints_notes(self.raw(), text, capacity, length)
        })?;
        let notes = notes.lines().map(String::from).collect();
        Ok(Some(Restored { step, tokens, user: self.user()?, notes }))
    }

    fn user(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        check(unsafe { sys::gw_checkpoints_user(self.raw(), std::ptr::null_mut(), 0, &mut size) })?;
        let mut bytes = vec![0u8; size];
        if size > 0 {
            let to = bytes.as_mut_ptr().cast();
            check(unsafe { sys::gw_checkpoints_user(self.raw(), to, bytes.len(), &mut size) })?;
        }
        Ok(bytes)
    }

    /// Local. A text of the checkpoint that was restored last.
    ///
    /// # Errors
    /// - `NotFound`: the checkpoint has no such text.
    /// - `InvalidState`: nothing was restored.
    pub fn text(&self, name: &str) -> Result<String> {
        let name = c_text(name, "name")?;
        read_text(|text, capacity, length| unsafe {
            sys::gw_checkpoints_text(self.raw(), name.as_ptr(), text, capacity, length)
        })
    }

    /// Local. Host memory that is kept for copies.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn buffer_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        check(unsafe { sys::gw_checkpoints_buffer_bytes(self.raw(), &mut bytes) })?;
        Ok(bytes)
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        unsafe { sys::gw_checkpoints_release(self.raw()) }
    }
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checkpoints")
    }
}
