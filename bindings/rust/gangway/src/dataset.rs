//! Datasets: files of tokens as the batches of a training.
use crate::error::{check, made, Result};
use crate::mesh::Gangs;
use crate::module::Module;
use crate::optim::Optimizer;
use crate::options::{c_text, initialised, open_enum, options, path_text, read_text, text_pointer};
use crate::train::{Batch, StepOptions, StepResult};
use crate::view::{Name, View};
use gangway_sys as sys;
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

open_enum! {
    /// How the tokens of a dataset become rows.
    Packing {
        /// Rows of consecutive tokens.
        Stream = GW_PACKING_STREAM,
        /// Whole documents packed into rows. Neither labels nor attention cross their bounds.
        Documents = GW_PACKING_DOCUMENTS,
    }
}

options! {
    #[derive(Copy)]
    DatasetOptions = gw_dataset_options, gw_dataset_options_init {
        /// The tokens of a row.
        sequence: i64,
        /// Of the order of rows.
        seed: u64,
        /// Ids from this number on are refused; 0: ids are not compared.
        vocab_size: i64,
        /// The id that ends each packed document; -1: by the index of Megatron or of gw-tokens.
        document_end: i64,
        packing: Packing,
        /// False: each source's rows come in the order of its files.
        shuffle: bool,
        /// How many batches a thread reads ahead.
        read_ahead: i32,
    }
}

/// A file, a folder or a pattern, whose rows are one source.
#[derive(Clone, Debug)]
pub struct Source {
    path: PathBuf,
    format: Option<String>,
    weight: f64,
}

impl Source {
    pub fn new(path: impl AsRef<Path>) -> Source {
        Source { path: path.as_ref().to_owned(), format: None, weight: 1.0 }
    }

    /// The share of this source in the rows, compared with the other weights; without it 1.
    pub fn weight(mut self, weight: f64) -> Source {
        self.weight = weight;
        self
    }

    /// "u8", "u16", "u32", "llm.c", "megatron" or "npy"; without it the files' names tell.
    pub fn format(mut self, format: &str) -> Source {
        self.format = Some(format.to_owned());
        self
    }
}

/// Rows of tokens out of files, in an order that depends on the seed alone, and never on the ranks.
///
/// ```no_run
/// use gangway::{Dataset, DatasetOptions, Source};
/// # fn train(gangs: &gangway::Gangs, model: &mut gangway::Module, opt: &mut gangway::Optimizer) -> gangway::Result<()> {
/// let sources = [Source::new("web.bin").weight(0.7), Source::new("code.bin").weight(0.3)];
/// let mut data = Dataset::new(&sources, &DatasetOptions { sequence: 2048, seed: 1, ..Default::default() })?;
/// for _ in 0..1000 {
///     let batch = data.next(gangs, 512)?;
///     model.train_step_on(opt, &batch, &Default::default())?;
/// }
/// let place = data.position()?; // a few bytes of JSON; another run: data.restore(&place, false)
/// # println!("{place}"); Ok(()) }
/// ```
pub struct Dataset {
    handle: NonNull<sys::gw_dataset>,
}

// The library runs calls one after another.
unsafe impl Send for Dataset {}
unsafe impl Sync for Dataset {}

impl Drop for Dataset {
    fn drop(&mut self) {
        unsafe { sys::gw_dataset_release(self.raw()) }
    }
}

impl Dataset {
    /// # Errors
    /// - `InvalidArgument`: an option is out of its range, the format of a file is not known, or nothing
    ///   tells where its documents end.
    /// - `NotFound`: no file matches.
    /// - `Io`: a file cannot be read.
    /// - `Corrupt`: a file is truncated or empty, or is not what its format says. The text names file and
    ///   position.
    pub fn new(sources: &[Source], options: &DatasetOptions) -> Result<Dataset> {
        let paths = sources.iter().map(|source| path_text(&source.path)).collect::<Result<Vec<_>>>()?;
        let format = |source: &Source| source.format.as_deref().map(|f| c_text(f, "format")).transpose();
        let formats = sources.iter().map(format).collect::<Result<Vec<_>>>()?;
        let raw = |((source, path), format): ((&Source, &std::ffi::CString), &Option<std::ffi::CString>)| {
            let mut raw = initialised!(gw_data_source, gw_data_source_init);
            raw.path = path.as_ptr();
            raw.format = text_pointer(format);
            raw.weight = source.weight;
            raw
        };
        let list: Vec<_> = sources.iter().zip(&paths).zip(&formats).map(raw).collect();
        let mut raw = options.raw();
        raw.sources = list.as_ptr();
        raw.source_count = list.len();
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_dataset_create(&raw, &mut handle) };
        Ok(Dataset { handle: made(status, handle)? })
    }

    fn raw(&self) -> *mut sys::gw_dataset {
        self.handle.as_ptr()
    }

    /// The next `global_batch` rows: those of this rank's data coordinate. Every rank gives the same number.
    /// Without gangs they are the thread's current ones, else all rows are given. There is no end: a new
    /// epoch follows.
    ///
    /// # Errors
    /// - `InvalidArgument`: `global_batch` is out of its range.
    /// - `Corrupt`: an id is outside of the vocabulary.
    /// - `Io`: a file cannot be read, or has changed since the dataset was made.
    /// - `Timeout`: the rows did not come within `GANGWAY_TIMEOUT_MS`.
    pub fn next<'g>(
        &mut self,
        gangs: impl Into<Option<&'g Gangs>>,
        global_batch: i64,
    ) -> Result<DataBatch<'_>> {
        let gangs = crate::module::raw_gangs(gangs);
        let mut raw = initialised!(gw_data_batch, gw_data_batch_init);
        check(unsafe { sys::gw_dataset_next(self.raw(), gangs, global_batch, &mut raw) })?;
        let view = |place: *const sys::gw_view, name| unsafe { View::from_raw(&*place, Name(name, None)) };
        Ok(DataBatch {
            tokens: view(raw.tokens, "tokens"),
            labels: view(raw.labels, "labels"),
            documents: (!raw.documents.is_null()).then(|| view(raw.documents, "documents")),
            rows: (raw.first_row, raw.last_row),
            rank_rows: (raw.rank_first_row, raw.rank_last_row),
            label_count: raw.label_count,
            data_seconds: raw.data_seconds,
            weight: unsafe { (*raw.batch).weight },
        })
    }

    /// Of all sources.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn rows_per_epoch(&self) -> Result<i64> {
        let mut rows = 0;
        check(unsafe { sys::gw_dataset_rows_per_epoch(self.raw(), &mut rows) })?;
        Ok(rows)
    }

    /// The place in the training, over all ranks.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn rows_taken(&self) -> Result<i64> {
        let mut rows = 0;
        check(unsafe { sys::gw_dataset_rows_taken(self.raw(), &mut rows) })?;
        Ok(rows)
    }

    /// Also before a restore.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn batches_taken(&self) -> Result<i64> {
        let mut batches = 0;
        check(unsafe { sys::gw_dataset_batches_taken(self.raw(), &mut batches) })?;
        Ok(batches)
    }

    /// Goes elsewhere: to 0 at the beginning of each evaluation.
    ///
    /// # Errors
    /// `InvalidArgument`: `rows` is below 0.
    pub fn set_rows_taken(&mut self, rows: i64) -> Result<()> {
        check(unsafe { sys::gw_dataset_set_rows_taken(self.raw(), rows) })
    }

    /// The place as JSON, the same on every rank.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn position(&self) -> Result<String> {
        read_text(|text, room, length| unsafe { sys::gw_dataset_position(self.raw(), text, room, length) })
    }

    /// Goes to such a place. Files and options that decide the order must be as they were, unless
    /// `ignore_differences`.
    ///
    /// # Errors
    /// - `InvalidArgument`: the text is no position.
    /// - `Mismatch`: files or options differ, so that other rows would follow; the text names the first
    ///   difference.
    pub fn restore(&mut self, position: &str, ignore_differences: bool) -> Result<()> {
        let position = c_text(position, "position")?;
        check(unsafe { sys::gw_dataset_restore(self.raw(), position.as_ptr(), ignore_differences as i32) })
    }
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("rows_per_epoch", &self.rows_per_epoch().unwrap_or(-1))
            .field("rows_taken", &self.rows_taken().unwrap_or(-1))
            .finish()
    }
}

/// This rank's rows of one global batch.
#[derive(Clone, Debug)]
pub struct DataBatch<'d> {
    /// i64 [rows, sequence]; 0 where there is padding.
    pub tokens: View<'d>,
    /// i64 [rows, sequence]: the token that follows; -100 where none does.
    pub labels: View<'d>,
    /// i32 [rows, sequence], with packed documents: each token's document in its row; -1 where there is
    /// padding.
    pub documents: Option<View<'d>>,
    /// The global batch has these rows of the training: from the first number up to the second.
    pub rows: (i64, i64),
    /// Of them, this rank has these.
    pub rank_rows: (i64, i64),
    /// This rank's labels that are not -100.
    pub label_count: i64,
    /// How long the rows were waited for.
    pub data_seconds: f64,
    weight: i64,
}

impl<'d> DataBatch<'d> {
    /// For the calls that take a batch of views.
    pub fn batch(&self) -> Batch<'d> {
        let batch = Batch::from_views(vec![self.tokens], vec![self.labels]).documents_from(self.documents);
        if self.weight < 0 {
            return batch;
        }
        batch.weight(self.weight)
    }
}

impl Module {
    /// Collective. [`Module::train_step_with`] on a batch of a dataset.
    ///
    /// # Errors
    /// As [`Module::train_step_with`].
    pub fn train_step_on(
        &mut self,
        optimizer: &mut Optimizer,
        batch: &DataBatch<'_>,
        options: &StepOptions,
    ) -> Result<StepResult> {
        self.train_step_with(optimizer, &batch.batch(), options)
    }

    /// Collective. [`Module::eval_step_with`] on a batch of a dataset.
    ///
    /// # Errors
    /// As [`Module::eval_step_with`].
    pub fn eval_step_on(&mut self, batch: &DataBatch<'_>, options: &StepOptions) -> Result<StepResult> {
        self.eval_step_with(&batch.batch(), options)
    }
}
