use crate::array::AsView;
use crate::error::{check, made, Error, Result};
use crate::gang::Gang;
use crate::options::{initialised, options};
use crate::tensor::Tensor;
use crate::view::raw_view;
use gangway_sys as sys;
use std::fmt;
use std::ptr::NonNull;

/// A list of workers, ranks of a gang, in a grid; worker i has the row-major index i. Local: ranks that make
/// the same calls hold the same partitions. A rank that is no worker is inactive.
pub struct Partition {
    handle: NonNull<sys::gw_partition>,
}

// Immutable, counted atomically.
unsafe impl Send for Partition {}
unsafe impl Sync for Partition {}

impl Partition {
    /// All ranks, in one dim.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn new(gang: &Gang) -> Result<Partition> {
        Partition::owned(|out| unsafe { sys::gw_partition_create(gang.raw(), out) })
    }

    fn owned(call: impl FnOnce(*mut *mut sys::gw_partition) -> sys::gw_status) -> Result<Partition> {
        let mut handle = std::ptr::null_mut();
        let status = call(&mut handle);
        Ok(Partition { handle: made(status, handle)? })
    }

    fn raw(&self) -> *mut sys::gw_partition {
        self.handle.as_ptr()
    }

    /// These workers, in this order, in one dim.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no worker, one twice, or one outside of the partition.
    pub fn inclusive(&self, workers: &[usize]) -> Result<Partition> {
        let list = numbers(workers, "workers")?;
        Partition::owned(|out| unsafe {
            sys::gw_partition_inclusive(self.raw(), list.as_ptr(), list.len(), out)
        })
    }

    /// These workers, then those of `other` that are not among them, in one dim.
    ///
    /// # Errors
    /// `InvalidArgument`: the partitions are of two gangs.
    pub fn union(&self, other: &Partition) -> Result<Partition> {
        Partition::owned(|out| unsafe { sys::gw_partition_union(self.raw(), other.raw(), out) })
    }

    /// The same workers in a grid, the last dim fastest.
    ///
    /// # Errors
    /// `InvalidArgument`: no dim or more than 8, a dim below 1, or a product that is not the number of
    /// workers.
    pub fn cartesian(&self, shape: &[usize]) -> Result<Partition> {
        let list = numbers(shape, "shape")?;
        Partition::owned(|out| unsafe {
            sys::gw_partition_cartesian(self.raw(), list.as_ptr(), list.len(), out)
        })
    }

    /// The workers that share this rank's index on all other dims, in a grid of the kept ones.
    ///
    /// # Errors
    /// `InvalidArgument`: no dim, a dim that is not there, or one twice.
    pub fn subtopology(&self, kept: &[usize]) -> Result<Partition> {
        let list = numbers(kept, "kept")?;
        Partition::owned(|out| unsafe {
            sys::gw_partition_subtopology(self.raw(), list.as_ptr(), list.len(), out)
        })
    }

    fn info(&self) -> sys::gw_partition_info {
        let mut info = initialised!(gw_partition_info, gw_partition_info_init);
        check(unsafe { sys::gw_partition_describe(self.raw(), &mut info) }).expect("a partition has facts");
        info
    }

    /// Workers.
    pub fn size(&self) -> usize {
        self.info().size as usize
    }

    /// Of this worker; None: inactive.
    pub fn rank(&self) -> Option<usize> {
        usize::try_from(self.info().rank).ok()
    }

    /// This rank is a worker.
    pub fn is_active(&self) -> bool {
        self.info().active != 0
    }

    /// Workers along each dim.
    pub fn shape(&self) -> Vec<usize> {
        let info = self.info();
        info.shape[..info.ndim as usize].iter().map(|n| *n as usize).collect()
    }

    /// This worker's place; None: inactive.
    pub fn index(&self) -> Option<Vec<usize>> {
        let info = self.info();
        let place = info.index[..info.ndim as usize].iter().map(|n| *n as usize).collect();
        (info.active != 0).then_some(place)
    }

    /// The workers before and after this one along `dim`; None at the edge.
    ///
    /// # Errors
    /// `InvalidArgument`: a dim that is not there.
    pub fn neighbors(&self, dim: usize) -> Result<(Option<usize>, Option<usize>)> {
        let (mut before, mut after) = (0, 0);
        let dim = number(dim, "dim")?;
        check(unsafe { sys::gw_partition_neighbors(self.raw(), dim, &mut before, &mut after) })?;
        Ok((usize::try_from(before).ok(), usize::try_from(after).ok()))
    }
}

impl Clone for Partition {
    fn clone(&self) -> Partition {
        unsafe { sys::gw_partition_retain(self.raw()) };
        Partition { handle: self.handle }
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        unsafe { sys::gw_partition_release(self.raw()) }
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition").field("shape", &self.shape()).field("index", &self.index()).finish()
    }
}

fn number(value: usize, name: &str) -> Result<i32> {
    i32::try_from(value).map_err(|_| Error::argument(format!("{name} is {value}, more than {}", i32::MAX)))
}

fn numbers(values: &[usize], name: &str) -> Result<Vec<i32>> {
    values.iter().map(|value| number(*value, name)).collect()
}

/// The dims of a partition along which workers exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along<'a> {
    /// These.
    Axes(&'a [usize]),
    /// All but these.
    AxesKeep(&'a [usize]),
}

options! {
    #[derive(Copy)]
    MovementOptions = gw_movement_options, gw_movement_options_init {
        /// What gradients are multiplied by.
        backward_scale: f64,
        /// A rank that gets nothing has `[0]`; true: `[batch, 0]` of an input `[batch, ...]`.
        preserve_batch: bool,
        /// Broadcast and sum_reduce: the dims of the source in reverse order.
        transpose_source: bool,
        /// Likewise of the target.
        transpose_target: bool,
    }
}

/// Moves tensors over a partition, or from one to another; `backward` is its adjoint. The inner product is the
/// sum over all ranks. Creation is collective over the gang of the partitions, inactive ranks included.
///
/// Dim d of the partition cuts dim d of the tensor in [`all_gather`](Movement::all_gather),
/// [`reduce_scatter`](Movement::reduce_scatter) and [`repartition`](Movement::repartition).
pub struct Movement {
    handle: NonNull<sys::gw_movement>,
}

unsafe impl Send for Movement {}

impl Movement {
    fn new(
        source: &Partition,
        target: Option<&Partition>,
        kind: sys::gw_movement_kind,
        along: Option<Along<'_>>,
        options: &MovementOptions,
    ) -> Result<Movement> {
        let mut raw = options.raw();
        let list;
        match along {
            Some(Along::Axes(axes)) => {
                list = numbers(axes, "axes")?;
                raw.axes = list.as_ptr();
                raw.axis_count = list.len();
            }
            Some(Along::AxesKeep(axes)) => {
                list = numbers(axes, "axes_keep")?;
                raw.axes_keep = list.as_ptr();
                raw.keep_count = list.len();
            }
            None => {}
        }
        let other = target.map_or(std::ptr::null_mut(), Partition::raw);
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_movement_create(source.raw(), other, kind, &raw, &mut handle) };
        Ok(Movement { handle: made(status, handle)? })
    }

    /// Joins the pieces along one dim on every worker.
    ///
    /// # Errors
    /// - `InvalidArgument`: `along` does not fit the partition.
    /// - `Mismatch`: ranks ask for different movements.
    pub fn all_gather(
        partition: &Partition,
        along: Along<'_>,
        options: &MovementOptions,
    ) -> Result<Movement> {
        Movement::new(partition, None, sys::GW_MOVEMENT_ALL_GATHER, Some(along), options)
    }

    /// Sums over the workers along one dim; each keeps its balanced piece of it.
    ///
    /// # Errors
    /// - `InvalidArgument`: `along` does not fit the partition.
    /// - `Mismatch`: ranks ask for different movements.
    pub fn reduce_scatter(
        partition: &Partition,
        along: Along<'_>,
        options: &MovementOptions,
    ) -> Result<Movement> {
        Movement::new(partition, None, sys::GW_MOVEMENT_REDUCE_SCATTER, Some(along), options)
    }

    /// Sums over the workers along some dims, on each of them.
    ///
    /// # Errors
    /// - `InvalidArgument`: `along` does not fit the partition.
    /// - `Mismatch`: ranks ask for different movements.
    pub fn all_sum_reduce(
        partition: &Partition,
        along: Along<'_>,
        options: &MovementOptions,
    ) -> Result<Movement> {
        Movement::new(partition, None, sys::GW_MOVEMENT_ALL_SUM_REDUCE, Some(along), options)
    }

    /// From each worker of `source` to those of `target`: shapes align at the last dim, and the source's dim is
    /// the target's or 1.
    ///
    /// # Errors
    /// - `InvalidArgument`: the shapes of the partitions do not fit.
    /// - `Mismatch`: ranks ask for different movements.
    pub fn broadcast(source: &Partition, target: &Partition, options: &MovementOptions) -> Result<Movement> {
        Movement::new(source, Some(target), sys::GW_MOVEMENT_BROADCAST, None, options)
    }

    /// Sums the tensors of `source`'s workers on those of `target`: the reverse of a broadcast.
    ///
    /// # Errors
    /// - `InvalidArgument`: the shapes of the partitions do not fit.
    /// - `Mismatch`: ranks ask for different movements.
    pub fn sum_reduce(source: &Partition, target: &Partition, options: &MovementOptions) -> Result<Movement> {
        Movement::new(source, Some(target), sys::GW_MOVEMENT_SUM_REDUCE, None, options)
    }

    /// A tensor that is cut over `source` becomes cut over `target`, balanced.
    ///
    /// # Errors
    /// - `InvalidArgument`: the shapes of the partitions do not fit.
    /// - `Mismatch`: ranks ask for different movements.
    pub fn repartition(
        source: &Partition,
        target: &Partition,
        options: &MovementOptions,
    ) -> Result<Movement> {
        Movement::new(source, Some(target), sys::GW_MOVEMENT_REPARTITION, None, options)
    }

    /// Another handle of the same movement, which keeps a forward of its own: several forwards before their
    /// backwards take a duplicate each. All ranks run the calls of a movement and of its duplicates in one
    /// order.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn duplicate(&self) -> Result<Movement> {
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_movement_duplicate(self.handle.as_ptr(), &mut handle) };
        Ok(Movement { handle: made(status, handle)? })
    }

    /// Collective over the workers that exchange something. A rank that is no worker of the source passes a
    /// tensor of no elements.
    ///
    /// # Errors
    /// - `InvalidArgument`: shapes or dtypes that do not meet, or elements on an inactive rank.
    /// - What any collective fails by.
    pub fn forward(&mut self, input: &impl AsView) -> Result<Tensor> {
        let view = input.as_view();
        let mut out = std::ptr::null_mut();
        let status = unsafe {
            sys::gw_movement_forward(self.handle.as_ptr(), &raw_view(&view), std::ptr::null_mut(), &mut out)
        };
        Tensor::owned(status, out)
    }

    /// Collective likewise: the gradient of the last forward's input.
    ///
    /// # Errors
    /// - `InvalidState`: there was no forward.
    /// - `InvalidArgument`: another shape or dtype than the output's.
    /// - What any collective fails by.
    pub fn backward(&mut self, output_grad: &impl AsView) -> Result<Tensor> {
        let view = output_grad.as_view();
        let mut out = std::ptr::null_mut();
        let status = unsafe {
            sys::gw_movement_backward(self.handle.as_ptr(), &raw_view(&view), std::ptr::null_mut(), &mut out)
        };
        Tensor::owned(status, out)
    }
}

impl Drop for Movement {
    fn drop(&mut self) {
        unsafe { sys::gw_movement_release(self.handle.as_ptr()) }
    }
}

impl fmt::Debug for Movement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Movement").finish_non_exhaustive()
    }
}
