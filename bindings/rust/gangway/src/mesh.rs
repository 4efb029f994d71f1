use crate::error::{check, made, Result};
use crate::gang::{timeout_number, Gang};
use crate::options::{c_text, options};
use gangway_sys as sys;
use std::ffi::CString;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

options! {
    /// Degrees of the axes; at most one may be -1: the number of ranks divided by the others.
    #[derive(Copy, PartialEq, Eq)]
    Mesh = gw_mesh_options, gw_mesh_options_init {
        pp: i32,
        dp_replicate: i32,
        dp_shard: i32,
        cp: i32,
        tp: i32,
    }
}

macro_rules! degrees {
    ($($axis:ident),*) => { impl Mesh { $(
        pub fn $axis(mut self, degree: i32) -> Mesh {
            self.$axis = degree;
            self
        }
    )* } };
}
degrees!(pp, dp_replicate, dp_shard, cp, tp);

impl Mesh {
    /// Local. The degrees of a preset: "single", "ddp", "fsdp", "hsdp", "tp", "tp+fsdp", "pp" or "3d". `node_size`:
    /// ranks of a node, for hsdp and tp+fsdp.
    ///
    /// # Errors
    /// `InvalidArgument`: another name (the text lists the names), or `node_size`.
    pub fn preset(name: &str, node_size: i32) -> Result<Mesh> {
        let name = c_text(name, "preset")?;
        let mut raw = Mesh::default().raw();
        check(unsafe { sys::gw_mesh_options_preset(&mut raw, name.as_ptr(), node_size) })?;
        Ok(Mesh {
            pp: raw.pp,
            dp_replicate: raw.dp_replicate,
            dp_shard: raw.dp_shard,
            cp: raw.cp,
            tp: raw.tp,
        })
    }
}

/// Gangs that you made, one for each place of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct GangPlaces<'a> {
    pub root: &'a Gang,
    pub dp: &'a Gang,
    pub rdp: &'a Gang,
    pub sdp: &'a Gang,
    pub tp: &'a Gang,
    pub pp: &'a Gang,
    pub cp: &'a Gang,
}

/// Collective. The gangs of a mesh over the ranks that the environment names (gangrun, torchrun, srun,
/// mpirun); with nothing set: one rank.
///
/// # Errors
/// What [`Gang::new`] and [`Gangs::new`] fail by.
pub fn init(mesh: &Mesh) -> Result<Gangs> {
    create(std::ptr::null_mut(), mesh)
}

fn create(root: *mut sys::gw_gang, mesh: &Mesh) -> Result<Gangs> {
    let mut handle = std::ptr::null_mut();
    Gangs::owned(unsafe { sys::gw_gangs_create(root, &mesh.raw(), &mut handle) }, handle)
}

/// The gangs of a mesh. Clones are the same gangs. Dropping them never shuts them down.
///
/// Calls that take `impl Into<Option<&Gangs>>` take `&gangs`, or `None`: the thread's current gangs, else one
/// rank.
#[derive(Clone)]
pub struct Gangs(Arc<Inner>);

struct Inner {
    handle: NonNull<sys::gw_gangs>,
    known: [Gang; 7], // in the order of KNOWN
}

const KNOWN: [&str; 7] = ["root", "dp", "rdp", "sdp", "tp", "pp", "cp"];

// Functions of gw_gangs may be called from any thread; the handle is counted atomically.
unsafe impl Send for Inner {}
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        unsafe { sys::gw_gangs_release(self.handle.as_ptr()) }
    }
}

impl Gangs {
    /// Collective over `root`.
    ///
    /// # Errors
    /// `InvalidArgument`, on every rank: the product of the degrees is not the number of ranks; the text
    /// prints the equation.
    pub fn new(root: &Gang, mesh: &Mesh) -> Result<Gangs> {
        create(root.raw(), mesh)
    }

    /// Collective. tp, pp and cp by degree, the rest is dp.
    ///
    /// # Errors
    /// `InvalidArgument`: a degree is below 1, or does not divide the size.
    pub fn parallel(root: &Gang, tp: i32, pp: i32, cp: i32) -> Result<Gangs> {
        let mut handle = std::ptr::null_mut();
        Gangs::owned(unsafe { sys::gw_gangs_create_parallel(root.raw(), tp, pp, cp, &mut handle) }, handle)
    }

    /// Collective. Splits dp into sdp (within a node of `intra_node_size` ranks) and rdp; 0: sdp is dp, rdp
    /// one rank.
    ///
    /// # Errors
    /// `InvalidArgument`: `intra_node_size` does not divide dp, or cp is over 1.
    pub fn fsdp(&self, intra_node_size: i32) -> Result<Gangs> {
        let mut handle = std::ptr::null_mut();
        Gangs::owned(unsafe { sys::gw_gangs_create_fsdp(self.raw(), intra_node_size, &mut handle) }, handle)
    }

    /// Collective over the root. The sizes of the gangs are the degrees; shutdown leaves them alone.
    ///
    /// # Errors
    /// `InvalidArgument`, on every rank: the product of the sizes is not the size of the root, or a gang has
    /// other members than the mesh's.
    pub fn of(places: &GangPlaces<'_>) -> Result<Gangs> {
        let mut raw = std::mem::MaybeUninit::<sys::gw_gang_places>::uninit();
        let mut raw = unsafe {
            sys::gw_gang_places_init(raw.as_mut_ptr(), std::mem::size_of::<sys::gw_gang_places>());
            raw.assume_init()
        };
        raw.root = places.root.raw();
        raw.dp = places.dp.raw();
        raw.rdp = places.rdp.raw();
        raw.sdp = places.sdp.raw();
        raw.tp = places.tp.raw();
        raw.pp = places.pp.raw();
        raw.cp = places.cp.raw();
        let mut handle = std::ptr::null_mut();
        Gangs::owned(unsafe { sys::gw_gangs_create_of(&raw, &mut handle) }, handle)
    }

    /// Local. A fake gang of one in every place.
    ///
    /// # Errors
    /// `InvalidArgument`, `NotSupported`: the device.
    pub fn fake(device: &str) -> Result<Gangs> {
        let device = c_text(device, "device")?;
        let mut handle = std::ptr::null_mut();
        Gangs::owned(unsafe { sys::gw_gangs_create_fake(device.as_ptr(), &mut handle) }, handle)
    }

    /// Takes over a handle that a call has just made.
    fn owned(status: sys::gw_status, handle: *mut sys::gw_gangs) -> Result<Gangs> {
        struct Release(NonNull<sys::gw_gangs>);
        impl Drop for Release {
            fn drop(&mut self) {
                unsafe { sys::gw_gangs_release(self.0.as_ptr()) }
            }
        }
        let guard = Release(made(status, handle)?);
        let [root, dp, rdp, sdp, tp, pp, cp] = KNOWN.map(|axes| get(guard.0, axes));
        let known = [root?, dp?, rdp?, sdp?, tp?, pp?, cp?];
        let handle = guard.0;
        std::mem::forget(guard);
        Ok(Gangs(Arc::new(Inner { handle, known })))
    }

    /// A handle of the library's, which keeps it.
    pub(crate) fn borrowed(handle: *mut sys::gw_gangs) -> Result<Option<Gangs>> {
        if handle.is_null() {
            return Ok(None);
        }
        Gangs::owned(sys::GW_OK, unsafe { sys::gw_gangs_retain(handle) }).map(Some)
    }

    pub(crate) fn raw(&self) -> *mut sys::gw_gangs {
        self.0.handle.as_ptr()
    }

    pub fn root(&self) -> &Gang {
        &self.0.known[0]
    }

    pub fn dp(&self) -> &Gang {
        &self.0.known[1]
    }

    /// The replicas of dp: between nodes.
    pub fn rdp(&self) -> &Gang {
        &self.0.known[2]
    }

    /// The shards of dp.
    pub fn sdp(&self) -> &Gang {
        &self.0.known[3]
    }

    pub fn tp(&self) -> &Gang {
        &self.0.known[4]
    }

    pub fn pp(&self) -> &Gang {
        &self.0.known[5]
    }

    pub fn cp(&self) -> &Gang {
        &self.0.known[6]
    }

    /// Local. A gang by name or by axes joined by '+', like "dp_shard+cp".
    ///
    /// # Errors
    /// - `InvalidArgument`: an axis is unknown or named twice.
    /// - `InvalidState`: the gangs were shut down.
    pub fn get(&self, axes: &str) -> Result<Gang> {
        get(self.0.handle, axes)
    }

    /// Local. This rank's coordinate on an axis, and the axis' degree.
    ///
    /// # Errors
    /// `InvalidArgument`: the axis is unknown, or is a product of axes.
    pub fn coordinate(&self, axis: &str) -> Result<(usize, usize)> {
        let axis = c_text(axis, "axis")?;
        let (mut index, mut degree) = (0, 0);
        check(unsafe { sys::gw_gangs_coordinate(self.raw(), axis.as_ptr(), &mut index, &mut degree) })?;
        Ok((index as usize, degree as usize))
    }

    /// Local. Which rows of the global batch this rank reads: part `.0` of `.1`.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn data_shard(&self) -> Result<(usize, usize)> {
        let (mut index, mut count) = (0, 0);
        check(unsafe { sys::gw_gangs_data_shard(self.raw(), &mut index, &mut count) })?;
        Ok((index as usize, count as usize))
    }

    /// Collective and orderly: all gangs that this made. None: the gang's deadline.
    ///
    /// # Errors
    /// `Timeout`, `PeerLost`: the first failure, after all gangs were tried.
    pub fn shutdown(&self, timeout: Option<Duration>) -> Result<()> {
        check(unsafe { sys::gw_gangs_shutdown(self.raw(), timeout_number(timeout)) })
    }

    /// Local. Breaks all gangs that this made.
    ///
    /// # Errors
    /// `InvalidArgument`: `reason` holds a zero byte.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = c_text(reason, "reason")?;
        check(unsafe { sys::gw_gangs_abort(self.raw(), reason.as_ptr()) })
    }

    /// Local. Makes these the current gangs of this thread until the guard is dropped; guards are dropped in
    /// the reverse order.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn push_current(&self) -> Result<Current<'_>> {
        check(unsafe { sys::gw_gangs_push_current(self.raw()) })?;
        Ok(Current { gangs: self, thread: PhantomData })
    }

    /// Local. The top of this thread's stack. With a device and an empty stack: the device's default, see
    /// [`Gangs::set_default`], or fake gangs of one.
    ///
    /// # Errors
    /// `InvalidArgument`, `NotSupported`: the device.
    pub fn current(device: Option<&str>) -> Result<Option<Gangs>> {
        let device: Option<CString> = device.map(|device| c_text(device, "device")).transpose()?;
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_gangs_current(crate::options::text_pointer(&device), &mut handle) };
        check(status)?;
        if handle.is_null() {
            return Ok(None);
        }
        Gangs::owned(status, handle).map(Some)
    }

    /// Local. The default of a device for this thread; None: back to the fake ones.
    ///
    /// # Errors
    /// `InvalidArgument`, `NotSupported`: the device.
    pub fn set_default<'g>(device: &str, gangs: impl Into<Option<&'g Gangs>>) -> Result<()> {
        let device = c_text(device, "device")?;
        let handle = crate::module::raw_gangs(gangs);
        check(unsafe { sys::gw_gangs_set_default(device.as_ptr(), handle) })
    }
}

fn get(gangs: NonNull<sys::gw_gangs>, axes: &str) -> Result<Gang> {
    let axes = c_text(axes, "axes")?;
    let mut handle = std::ptr::null_mut();
    Gang::owned(unsafe { sys::gw_gangs_get(gangs.as_ptr(), axes.as_ptr(), &mut handle) }, handle)
}

impl fmt::Debug for Gangs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0.known).finish()
    }
}

/// While this lives, its gangs are the current ones of the thread.
#[must_use = "dropping this pops the current gangs"]
#[derive(Debug)]
pub struct Current<'a> {
    gangs: &'a Gangs,
    thread: PhantomData<*const ()>, // the stack is the thread's
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        unsafe { sys::gw_gangs_pop_current(self.gangs.raw()) };
    }
}
