use crate::array::{AsView, Views};
use crate::element::DType;
use crate::error::{check, Error, Result};
use crate::mesh::Gangs;
use crate::view::{null_view, raw_view, raw_views, Name, View, ViewMut};
use gangway_sys as sys;
use std::any::Any;
use std::marker::PhantomData;

/// What a closure of a [`crate::Custom`] module sees. Fields are separate, so that inputs can be read while
/// outputs are written. Nothing of it leaves the closure:
///
/// ```compile_fail,E0521
/// let mut kept = None;
/// gangway::Custom::new("leak").forward(move |call| {
///     kept = Some(call.inputs[0]);
///     Ok(())
/// });
/// ```
#[derive(Debug)]
pub struct Call<'c> {
    /// Forward and both backwards.
    pub inputs: Vec<View<'c>>,
    /// Forward: to write.
    pub outputs: Vec<ViewMut<'c>>,
    /// Both backwards: the outputs as forward wrote them.
    pub results: Vec<View<'c>>,
    /// Backward of inputs; None: zero.
    pub output_grads: Vec<Option<View<'c>>>,
    /// Backward of inputs: to write; None: not wanted.
    pub input_grads: Vec<Option<ViewMut<'c>>>,
    /// Values in the compute dtype.
    pub parameters: Vec<View<'c>>,
    /// Both backwards: to add to; None: frozen.
    pub parameter_grads: Vec<Option<ViewMut<'c>>>,
    raw: *mut sys::gw_call,
    life: PhantomData<&'c mut sys::gw_call>,
}

pub(crate) type State = Box<dyn Any + Send>;

/// A pointer and a count of the library's as a slice; null is empty.
unsafe fn list<'a, T>(data: *const T, count: i32) -> &'a [T] {
    if data.is_null() || count <= 0 {
        return &[];
    }
    std::slice::from_raw_parts(data, count as usize)
}

unsafe fn reads<'c>(name: &'static str, views: &[sys::gw_view]) -> Vec<View<'c>> {
    views.iter().enumerate().map(|(i, view)| View::from_raw(view, Name(name, Some(i)))).collect()
}

unsafe fn perhaps<'c>(name: &'static str, views: &[sys::gw_view]) -> Vec<Option<View<'c>>> {
    reads(name, views).into_iter().map(|view| if view.is_null() { None } else { Some(view) }).collect()
}

unsafe fn writes<'c>(name: &'static str, views: &[sys::gw_view]) -> Vec<Option<ViewMut<'c>>> {
    let named = views.iter().enumerate().map(|(i, view)| ViewMut::from_raw(view, Name(name, Some(i))));
    named.map(|view| if view.is_null() { None } else { Some(view) }).collect()
}

impl<'c> Call<'c> {
    /// # Safety
    /// `raw` is the call of the callback in progress, not in its shapes phase.
    pub(crate) unsafe fn new(raw: *mut sys::gw_call) -> Call<'c> {
        let c = &*raw;
        let forward = c.phase == sys::GW_PHASE_FORWARD;
        let outputs = list(c.outputs, c.output_count);
        let (grads, parameters) = if forward { (0, 0) } else { (c.parameter_count, c.output_count) };
        let input_grads = if c.phase == sys::GW_PHASE_BACKWARD_INPUT { c.input_count } else { 0 };
        Call {
            inputs: reads("inputs", list(c.inputs, c.input_count)),
            outputs: if forward {
                let named = outputs.iter().enumerate();
                named.map(|(i, view)| ViewMut::from_raw(view, Name("outputs", Some(i)))).collect()
            } else {
                Vec::new()
            },
            results: if forward { Vec::new() } else { reads("results", outputs) },
            output_grads: perhaps("output_grads", list(c.output_grads, parameters)),
            input_grads: writes("input_grads", list(c.input_grads, input_grads)),
            parameters: reads("parameters", list(c.parameters, c.parameter_count)),
            parameter_grads: writes("parameter_grads", list(c.parameter_grads, grads)),
            raw,
            life: PhantomData,
        }
    }

    fn raw(&self) -> &sys::gw_call {
        unsafe { &*self.raw }
    }

    /// Gradients will be wanted.
    pub fn training(&self) -> bool {
        self.raw().training != 0
    }

    /// This forward repeats an earlier one.
    pub fn recomputing(&self) -> bool {
        self.raw().recomputing != 0
    }

    pub fn microbatch(&self) -> i32 {
        self.raw().microbatch
    }

    pub fn step(&self) -> i64 {
        self.raw().step
    }

    /// Loss scale / N: the value from which the backward of a loss starts.
    pub fn loss_scale(&self) -> f64 {
        self.raw().loss_scale
    }

    /// Depends on module, step, microbatch and data coordinate; the same when recomputed.
    pub fn seed(&self) -> u64 {
        self.raw().seed
    }

    /// None outside of gangs.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn gangs(&self) -> Result<Option<Gangs>> {
        Gangs::borrowed(self.raw().gangs)
    }

    /// Forward: keeps a value for backward. It is dropped once, after the last backward or before
    /// recomputation.
    ///
    /// # Errors
    /// `InvalidState`: this is no forward.
    pub fn set_state<S: Send + 'static>(&mut self, state: S) -> Result<()> {
        let place = self.raw().state;
        if place.is_null() || self.raw().phase != sys::GW_PHASE_FORWARD {
            return Err(Error::new(crate::Code::InvalidState, "only forward keeps a state"));
        }
        let boxed: State = Box::new(state);
        unsafe {
            let old = std::mem::replace(&mut *place, Box::into_raw(Box::new(boxed)).cast());
            if !old.is_null() {
                drop(Box::from_raw(old.cast::<State>()));
            }
        }
        Ok(())
    }

    /// In both backwards: what forward has kept.
    ///
    /// # Errors
    /// `InvalidState`: this is a forward, or forward has kept no state of this type.
    pub fn state<S: Send + 'static>(&self) -> Result<&'c S> {
        let forward = self.raw().phase == sys::GW_PHASE_FORWARD;
        let place = if forward { std::ptr::null_mut() } else { self.raw().state };
        let kept = unsafe { place.as_ref().and_then(|state| state.cast::<State>().as_ref()) };
        kept.and_then(|state| state.downcast_ref())
            .ok_or_else(|| Error::new(crate::Code::InvalidState, "forward has kept no state of this type"))
    }

    /// In forward: runs a child. Its outputs live as long as the call's own inputs.
    ///
    /// # Errors
    /// - `InvalidArgument`: there is no such child, or the child refuses the inputs.
    /// - `InvalidState`: the closure is no forward.
    /// - What the child itself fails by.
    pub fn child_forward<'v>(&self, child: usize, inputs: impl Views<'v>) -> Result<Vec<View<'c>>> {
        let views = inputs.views();
        let raw = raw_views(&views);
        let mut found = [null_view(); CHILD_VIEWS];
        let (place, child, mut made) = (found.as_mut_ptr(), crate::gang::rank_number(child), 0);
        let (given, count) = (raw.as_ptr(), raw.len());
        check(unsafe { sys::gw_call_forward(self.raw, child, given, count, place, CHILD_VIEWS, &mut made) })?;
        let found = unsafe { perhaps("a child's outputs", &found[..made]) };
        Ok(found.into_iter().flatten().collect())
    }

    /// In the backward of inputs: the child's input gradients, None where there is none.
    ///
    /// # Errors
    /// - `InvalidArgument`: there is no such child, or a gradient has another shape or dtype than the output.
    /// - `InvalidState`: the closure is no backward of inputs.
    /// - What the child itself fails by.
    pub fn child_backward(
        &self,
        child: usize,
        output_grads: &[Option<View<'_>>],
    ) -> Result<Vec<Option<View<'c>>>> {
        let views: Vec<View<'_>> = output_grads.iter().flatten().map(|view| view.as_view()).collect();
        let mut given = views.iter();
        let null = null_view();
        let raw: Vec<_> =
            output_grads.iter().map(|grad| grad.and(given.next()).map_or(null, raw_view)).collect();
        let mut found = [null; CHILD_VIEWS];
        let (place, child, mut made) = (found.as_mut_ptr(), crate::gang::rank_number(child), 0);
        check(unsafe {
            sys::gw_call_backward(self.raw, child, raw.as_ptr(), raw.len(), place, CHILD_VIEWS, &mut made)
        })?;
        Ok(unsafe { perhaps("a child's input_grads", &found[..made]) })
    }
}

/// Room for a child's outputs.
const CHILD_VIEWS: usize = 16;

/// The shapes phase of a [`crate::Custom`] module.
#[derive(Debug)]
pub struct Shapes<'c> {
    /// Dims and dtypes; there is no data.
    pub inputs: Vec<Spec>,
    outputs: &'c mut [sys::gw_view],
}

/// The shape and dtype of an input or output, in the shapes phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub dtype: DType,
    pub shape: Vec<i64>,
}

impl Shapes<'_> {
    /// # Safety
    /// `raw` is the call of the callback in progress, in its shapes phase.
    pub(crate) unsafe fn new(raw: *mut sys::gw_call) -> Self {
        let c = &*raw;
        let spec = |view: &sys::gw_view| Spec {
            dtype: DType(view.dtype),
            shape: list(view.shape, view.ndim).to_vec(),
        };
        let outputs = if c.outputs.is_null() || c.output_count <= 0 {
            &mut []
        } else {
            std::slice::from_raw_parts_mut(c.outputs, c.output_count as usize)
        };
        Shapes { inputs: list(c.inputs, c.input_count).iter().map(spec).collect(), outputs }
    }

    /// Says what output `index` will be.
    ///
    /// # Errors
    /// `InvalidArgument`: the module has no such output, or `shape` has more than 8 dims.
    pub fn output(&mut self, index: usize, dtype: DType, shape: &[i64]) -> Result<()> {
        let (count, dims, room) = (self.outputs.len(), shape.len(), 8);
        if index >= count {
            return Err(Error::argument(format!("output is {index}, the module has {count}, from 0 on")));
        }
        if dims > room {
            return Err(Error::argument(format!("output {index} has {dims} dims, {room} are the most")));
        }
        let view = &mut self.outputs[index];
        view.dtype = dtype.0;
        view.ndim = shape.len() as i32;
        // The library gives room for 8 numbers, to be written.
        unsafe { std::ptr::copy_nonoverlapping(shape.as_ptr(), view.shape as *mut i64, shape.len()) };
        Ok(())
    }
}
