use crate::error::{borrowed_text, check, made, Error, Result};
use crate::options::{c_text, options, path_text, read_text, results, text_pointer};
use crate::store::Store;
use gangway_sys as sys;
use std::ffi::CString;
use std::fmt;
use std::os::raw::c_void;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

options! {
    /// How a gang is made.
    GangOptions = gw_gang_options, gw_gang_options_init {
        /// Deadline of every wait; 0: 15 minutes or GANGWAY_TIMEOUT_MS.
        timeout_ms: i64,
        /// A peer whose heartbeat stands still for so long is lost; at least 50, equal on all ranks; 0: off
        /// or GANGWAY_LIVENESS_MS.
        liveness_ms: i64,
        /// Address space of this host's arena; 0: min(8 x RAM, 256 GiB).
        arena_bytes: u64,
        /// Bytes that this host's arena may take; 0: 80 % of the memory that is available at creation.
        memory_limit: u64,
        /// A stream of high priority on CUDA.
        high_priority: bool,
        /// Any other number of ranks is refused; 0: any.
        expected_size: i32,
        /// Threads of this rank's pool; 0: cores / ranks on this host.
        threads: i32,
        /// -1: the environment decides; else with `size`, and `store`, `id` or [`Gang::by_all_gather`].
        rank: i32,
        size: i32,
    } with {
        /// None: "cpu".
        device: Option<String> = None,
        /// None: "auto".
        engine: Option<String> = None,
        /// Names the gang in errors; None: "gang".
        name: Option<String> = None,
        /// Where ranks meet; None: `id`, else the environment's.
        store: Option<Store> = None,
        /// The same on every rank, see [`Gang::create_id`]; empty: none.
        id: Vec<u8> = Vec::new(),
    }
}

impl GangOptions {
    /// Calls with the C struct; its texts live as long as the call.
    pub(crate) fn with_raw<R>(&self, call: impl FnOnce(*const sys::gw_gang_options) -> R) -> Result<R> {
        let text = |text: &Option<String>, what| -> Result<Option<CString>> {
            text.as_deref().map(|text| c_text(text, what)).transpose()
        };
        let (device, engine) = (text(&self.device, "device")?, text(&self.engine, "engine")?);
        let name = text(&self.name, "name")?;
        let mut raw = self.raw();
        raw.device = text_pointer(&device);
        raw.engine = text_pointer(&engine);
        raw.name = text_pointer(&name);
        raw.store = self.store.as_ref().map_or(std::ptr::null_mut(), Store::handle);
        if !self.id.is_empty() {
            raw.id = self.id.as_ptr().cast();
            raw.id_size = self.id.len();
        }
        Ok(call(&raw))
    }
}

results! {
    /// What a gang has moved so far.
    Traffic = gw_gang_traffic, gw_gang_traffic_init {
        calls: u64,
        /// Payload that this rank read from peers.
        bytes_moved: u64,
        /// Bytes of its own payload that were copied into staging memory first.
        bytes_staged: u64,
    }
}

/// Ranks that act together. Clones are the same gang. Calls from several threads run one by one in the order
/// they come. Dropping a gang never shuts it down.
pub struct Gang {
    handle: NonNull<sys::gw_gang>,
}

// gw_gang functions may be called from any thread; the handle is counted atomically.
unsafe impl Send for Gang {}
unsafe impl Sync for Gang {}

fn ranks(ranks: &[usize]) -> Vec<i32> {
    ranks.iter().map(|rank| rank_number(*rank)).collect()
}

/// A rank outside of the range is in no gang; the library refuses it.
pub(crate) fn rank_number(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

/// -1: the gang's deadline. Rounded up: 0 would not wait at all.
pub(crate) fn timeout_number(timeout: Option<Duration>) -> i64 {
    let millis = |time: Duration| (time.as_nanos() + 999_999) / 1_000_000;
    timeout.map_or(-1, |time| i64::try_from(millis(time)).unwrap_or(i64::MAX))
}

#[test]
fn times_below_a_millisecond_are_rounded_up() {
    let number = |nanos| timeout_number(Some(Duration::from_nanos(nanos)));
    assert_eq!((number(0), number(1), number(1_000_000), number(1_000_001)), (0, 1, 1, 2));
    assert_eq!((timeout_number(None), timeout_number(Some(Duration::MAX))), (-1, i64::MAX));
}

impl Gang {
    /// Collective over the ranks to be. With default options the environment decides (gangrun, torchrun,
    /// srun, mpirun); with nothing set: one rank.
    ///
    /// # Errors
    /// - `InvalidArgument` names the environment variable or the option.
    /// - `NotSupported`: this build does not have the engine or the device.
    /// - `PeerLost`: a rank died after it had met rank 0.
    /// - `Timeout`: a rank did not arrive in time, for example because it died before it met rank 0.
    pub fn new(options: &GangOptions) -> Result<Gang> {
        let mut handle = std::ptr::null_mut();
        let status = options.with_raw(|raw| unsafe { sys::gw_gang_create(raw, &mut handle) })?;
        Ok(Gang { handle: made(status, handle)? })
    }

    /// Local. `count` root gangs in this process, one for each thread that is a rank.
    ///
    /// # Errors
    /// `InvalidArgument`: `count` is below 1 or too large, or the engine is for processes.
    pub fn threads(count: usize, options: &GangOptions) -> Result<Vec<Gang>> {
        let mut handles = vec![std::ptr::null_mut(); count];
        let place = handles.as_mut_ptr();
        let status =
            options.with_raw(|raw| unsafe { sys::gw_gang_create_threads(rank_number(count), raw, place) })?;
        check(status)?;
        handles.into_iter().map(|handle| Ok(Gang { handle: made(sys::GW_OK, handle)? })).collect()
    }

    /// Local. A gang without peers: acts as if every rank held the caller's data. [`Gangs::new`](crate::Gangs::new) over it is
    /// the mesh of one rank of any size, and `flight_record` of each of its gangs says what was called.
    ///
    /// # Errors
    /// `InvalidArgument`: the rank is outside of the size.
    pub fn fake(rank: usize, size: usize, options: &GangOptions) -> Result<Gang> {
        let (rank, size) = (rank_number(rank), rank_number(size));
        let mut handle = std::ptr::null_mut();
        let status =
            options.with_raw(|raw| unsafe { sys::gw_gang_create_fake(rank, size, raw, &mut handle) })?;
        Ok(Gang { handle: made(status, handle)? })
    }

    /// Local. An id for [`GangOptions::id`]: a secret, which the other ranks must get over a private channel.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn create_id() -> Result<Vec<u8>> {
        let mut id = vec![0u8; 64];
        let mut size = 0;
        check(unsafe { sys::gw_gang_id_create(id.as_mut_ptr().cast(), id.len(), &mut size) })?;
        id.truncate(size);
        Ok(id)
    }

    /// Collective. New ranks in the order of the list; None for a rank that is not in it.
    ///
    /// # Errors
    /// - `InvalidArgument`, on every rank: a rank twice or outside of the gang, or an empty list.
    /// - `Mismatch`: the lists differ.
    /// - What any collective fails by.
    pub fn create_gang(&self, members: &[usize]) -> Result<Option<Gang>> {
        let list = ranks(members);
        self.perhaps(|raw, out| unsafe { sys::gw_gang_create_gang(raw, list.as_ptr(), list.len(), out) })
    }

    /// Collective. Ranks of one color, by key, then rank; None for no color.
    ///
    /// # Errors
    /// - `InvalidArgument`: a color that does not fit into 31 bits.
    /// - `InvalidState`: the gang was shut down.
    /// - What any collective fails by.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Gang>> {
        let color = match color.map(i32::try_from) {
            None => -1,
            Some(Ok(color)) => color,
            Some(Err(_)) => return Err(Error::argument(format!("color {color:?} is over {}", i32::MAX))),
        };
        self.perhaps(|raw, out| unsafe { sys::gw_gang_split(raw, color, key, out) })
    }

    /// Collective. The same members, private traffic.
    ///
    /// # Errors
    /// - `InvalidState`: the gang was shut down.
    /// - What any collective fails by.
    pub fn duplicate(&self) -> Result<Gang> {
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_gang_duplicate(self.raw(), &mut handle) };
        Ok(Gang { handle: made(status, handle)? })
    }

    /// Collective over the survivors: ranks of the broken gang, the same list on each.
    ///
    /// # Errors
    /// - `Mismatch`, on all of them: live ranks gave different lists.
    /// - `Aborted`: the others took this rank for lost and went on without it.
    /// - `Timeout` names a rank that did not arrive or did not end.
    /// - `InvalidState`: the gang is not broken.
    /// - `InvalidArgument`: this rank is not in the list.
    pub fn shrink(&self, survivors: &[usize]) -> Result<Gang> {
        let list = ranks(survivors);
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_gang_shrink(self.raw(), list.as_ptr(), list.len(), &mut handle) };
        Ok(Gang { handle: made(status, handle)? })
    }

    fn perhaps(
        &self,
        call: impl FnOnce(*mut sys::gw_gang, *mut *mut sys::gw_gang) -> sys::gw_status,
    ) -> Result<Option<Gang>> {
        let mut handle = std::ptr::null_mut();
        check(call(self.raw(), &mut handle))?;
        Ok(NonNull::new(handle).map(|handle| Gang { handle }))
    }

    pub(crate) fn owned(status: sys::gw_status, handle: *mut sys::gw_gang) -> Result<Gang> {
        Ok(Gang { handle: made(status, handle)? })
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut sys::gw_gang {
        self.handle.as_ptr()
    }

    #[inline]
    pub fn rank(&self) -> usize {
        unsafe { sys::gw_gang_rank(self.raw()) as usize }
    }

    #[inline]
    pub fn size(&self) -> usize {
        unsafe { sys::gw_gang_size(self.raw()) as usize }
    }

    pub fn name(&self) -> String {
        borrowed_text(unsafe { sys::gw_gang_name(self.raw()) })
    }

    pub fn engine(&self) -> String {
        borrowed_text(unsafe { sys::gw_gang_engine(self.raw()) })
    }

    pub fn device(&self) -> String {
        borrowed_text(unsafe { sys::gw_gang_device(self.raw()) })
    }

    /// `ncclComm_t`, `MPI_Comm` or the like; `NotSupported` where the engine has none.
    ///
    /// # Errors
    /// - `NotSupported`: the engine has none.
    /// - `InvalidState`: a gang of GPUs has not called a collective yet; the first one makes its
    ///   communicator.
    pub fn native_handle(&self) -> Result<*mut c_void> {
        let mut handle = std::ptr::null_mut();
        check(unsafe { sys::gw_gang_native_handle(self.raw(), &mut handle) })?;
        Ok(handle)
    }

    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn traffic(&self) -> Result<Traffic> {
        Traffic::filled(|raw| unsafe { sys::gw_gang_get_traffic(self.raw(), raw) })
    }

    /// Collective and orderly; later calls are `InvalidState`. None: the gang's deadline.
    ///
    /// # Errors
    /// `Timeout`, `PeerLost`: a rank did not arrive.
    pub fn shutdown(&self, timeout: Option<Duration>) -> Result<()> {
        check(unsafe { sys::gw_gang_shutdown(self.raw(), timeout_number(timeout)) })
    }

    /// Collective over a root gang. Each rank writes what it does, and when, into folder/rank-R.json until the trace ends. The
    /// program gw-trace puts the files together, for ui.perfetto.dev, and draws pipelines.
    ///
    /// # Errors
    /// - `InvalidArgument`: the gang was made of another one, or the folder is "".
    /// - `InvalidState`, on every rank: a rank traces already.
    /// - `Io`, on every rank: a file cannot be written.
    pub fn trace(&self, folder: impl AsRef<Path>) -> Result<Trace> {
        let folder = path_text(folder.as_ref())?;
        check(unsafe { sys::gw_gang_begin_trace(self.raw(), folder.as_ptr()) })?;
        Ok(Trace { gang: Some(self.clone()) })
    }

    /// Local, any thread. Breaks the gang and wakes every waiter here and on peers.
    ///
    /// # Errors
    /// `InvalidArgument`: `reason` holds a zero byte.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = c_text(reason, "reason")?;
        check(unsafe { sys::gw_gang_abort(self.raw(), reason.as_ptr()) })
    }

    /// Local. Ok while the gang works, else why it is broken.
    ///
    /// # Errors
    /// The first failure of the gang.
    pub fn async_error(&self) -> Result<()> {
        check(unsafe { sys::gw_gang_async_error(self.raw()) })
    }

    /// Local. The last collectives as text, one a line.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn flight_record(&self) -> Result<String> {
        read_text(|text, capacity, length| unsafe {
            sys::gw_gang_flight_record(self.raw(), text, capacity, length)
        })
    }
}

/// A trace that is being written; see [`Gang::trace`]. It ends when it is dropped.
#[must_use = "the trace ends when this is dropped"]
#[derive(Debug)]
pub struct Trace {
    gang: Option<Gang>,
}

impl Trace {
    /// Ends it. An error: the file is not complete.
    ///
    /// # Errors
    /// `Io`: the file is not complete.
    pub fn end(mut self) -> Result<()> {
        self.gang.take().map_or(Ok(()), |gang| check(unsafe { sys::gw_gang_end_trace(gang.raw()) }))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Some(gang) = self.gang.take() {
            unsafe { sys::gw_gang_end_trace(gang.raw()) };
        }
    }
}

impl Clone for Gang {
    fn clone(&self) -> Gang {
        unsafe { sys::gw_gang_retain(self.raw()) };
        Gang { handle: self.handle }
    }
}

impl Drop for Gang {
    fn drop(&mut self) {
        unsafe { sys::gw_gang_release(self.raw()) }
    }
}

impl fmt::Debug for Gang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rank {} of {}, {})", self.name(), self.rank(), self.size(), self.engine())
    }
}
