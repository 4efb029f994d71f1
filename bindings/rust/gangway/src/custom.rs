use crate::call::{Call, Shapes, State};
use crate::callback::{free_box, run, run_asked};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::module::Module;
use crate::options::{c_text, c_texts, initialised};
use crate::parameter::{with_raw, ParameterOptions};
use gangway_sys as sys;
use std::fmt;
use std::os::raw::c_void;

type OnShapes = Box<dyn Fn(&mut Shapes<'_>) -> Result<()> + Send>;
type OnCall = Box<dyn Fn(&mut Call<'_>) -> Result<()> + Send>;
type OnDType = Box<dyn Fn(DType) -> bool + Send>;

#[derive(Default)]
struct Closures {
    shapes: Option<OnShapes>,
    forward: Option<OnCall>,
    backward_input: Option<OnCall>,
    backward_weight: Option<OnCall>,
    accepts: Option<OnDType>,
}

/// Own compute as a module: closures that are called like a built-in layer. An error or a panic in one ends
/// the step: it comes back on this rank with its own text, and peers are told which module failed.
#[must_use = "build() makes the module"]
pub struct Custom {
    name: String,
    parallel_plan: Option<String>,
    parameter_groups: Option<String>,
    inputs: i32,
    outputs: i32,
    closures: Closures,
    parameters: Vec<ParameterOptions>,
    children: Vec<(String, Module)>,
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Custom");
        shown.field("name", &self.name).field("inputs", &self.inputs).field("outputs", &self.outputs);
        shown.field("parameters", &self.parameters).field("children", &self.children).finish_non_exhaustive()
    }
}

impl Custom {
    /// `name` names the module in errors. One input, one output.
    pub fn new(name: &str) -> Custom {
        let raw = initialised!(gw_custom_options, gw_custom_options_init);
        Custom {
            name: name.to_owned(),
            parallel_plan: None,
            parameter_groups: None,
            inputs: raw.input_count,
            outputs: raw.output_count,
            closures: Closures::default(),
            parameters: Vec::new(),
            children: Vec::new(),
        }
    }

    pub fn inputs(mut self, count: usize) -> Custom {
        self.inputs = crate::gang::rank_number(count);
        self
    }

    /// A training root has two: loss sum and weight.
    pub fn outputs(mut self, count: usize) -> Custom {
        self.outputs = crate::gang::rank_number(count);
        self
    }

    pub fn parameter(mut self, parameter: ParameterOptions) -> Custom {
        self.parameters.push(parameter);
        self
    }

    /// A module that forward calls; its number is the order of these calls.
    pub fn child(mut self, name: &str, child: Module) -> Custom {
        self.children.push((name.to_owned(), child));
        self
    }

    /// How the children are split over tp: rows "pattern -> style", a line each, with paths that start at
    /// this module.
    /// A row of the caller's wins.
    pub fn parallel_plan(mut self, plan: &str) -> Custom {
        self.parallel_plan = Some(plan.to_owned());
        self
    }

    /// Which modules below this one `parallelize` makes parameter groups: patterns of paths that start at
    /// this module, such as `layers.*`. What they leave is in the group around them.
    pub fn parameter_groups(mut self, patterns: &[&str]) -> Custom {
        self.parameter_groups = Some(patterns.join("\n"));
        self
    }

    /// The outputs' dims and dtype from the inputs'; without it each is one f64, as a training root's are.
    pub fn shapes(mut self, closure: impl Fn(&mut Shapes<'_>) -> Result<()> + Send + 'static) -> Custom {
        self.closures.shapes = Some(Box::new(closure));
        self
    }

    /// Required: writes the outputs.
    pub fn forward(mut self, closure: impl Fn(&mut Call<'_>) -> Result<()> + Send + 'static) -> Custom {
        self.closures.forward = Some(Box::new(closure));
        self
    }

    /// Required: from the outputs' gradients to the inputs'.
    pub fn backward_input(
        mut self,
        closure: impl Fn(&mut Call<'_>) -> Result<()> + Send + 'static,
    ) -> Custom {
        self.closures.backward_input = Some(Box::new(closure));
        self
    }

    /// Adds to the parameters' gradients; without it `backward_input` does both.
    pub fn backward_weight(
        mut self,
        closure: impl Fn(&mut Call<'_>) -> Result<()> + Send + 'static,
    ) -> Custom {
        self.closures.backward_weight = Some(Box::new(closure));
        self
    }

    /// Decides which compute dtypes the module accepts; without it: every one.
    pub fn accepts(mut self, closure: impl Fn(DType) -> bool + Send + 'static) -> Custom {
        self.closures.accepts = Some(Box::new(closure));
        self
    }

    /// Local.
    ///
    /// # Errors
    /// - `InvalidArgument`: a name, a number of inputs or outputs, a parameter, or a row of the plan; or
    ///   `forward` or `backward_input` is missing.
    /// - `InvalidState`: a child is part of another module, or bound to gangs.
    pub fn build(self) -> Result<Module> {
        let name = c_text(&self.name, "name")?;
        let plan = self.parallel_plan.as_deref().map(|text| c_text(text, "parallel_plan")).transpose()?;
        let groups =
            self.parameter_groups.as_deref().map(|text| c_text(text, "parameter_groups")).transpose()?;
        let child_names = c_texts(self.children.iter().map(|(name, _)| name.as_str()), "child name")?;
        let child_names: Vec<_> = child_names.iter().map(|name| name.as_ptr()).collect();
        let children: Vec<_> = self.children.iter().map(|(_, child)| child.raw()).collect();
        let (inputs, outputs, closures) = (self.inputs, self.outputs, self.closures);
        let mut handle = std::ptr::null_mut();
        let status = with_raw(self.parameters, |parameters, count| {
            let mut raw = initialised!(gw_custom_options, gw_custom_options_init);
            raw.name = name.as_ptr();
            raw.shapes = closures.shapes.is_some().then_some(shapes as _);
            raw.forward = closures.forward.is_some().then_some(forward as _);
            raw.backward_input = closures.backward_input.is_some().then_some(backward_input as _);
            raw.backward_weight = closures.backward_weight.is_some().then_some(backward_weight as _);
            raw.accepts_dtype = closures.accepts.is_some().then_some(accepts as _);
            raw.user = Box::into_raw(Box::new(closures)).cast();
            raw.free_user = Some(free_box::<Closures>);
            raw.free_state = Some(free_box::<State>);
            raw.input_count = inputs;
            raw.output_count = outputs;
            raw.parameters = parameters;
            raw.parameter_count = count;
            raw.children = children.as_ptr();
            raw.child_names = child_names.as_ptr();
            raw.child_count = children.len();
            raw.parallel_plan = plan.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
            raw.parameter_groups = groups.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
            unsafe { sys::gw_custom_create(&raw, &mut handle) }
        })?;
        Module::owned(status, handle)
    }
}

unsafe fn closures<'a>(user: *mut c_void) -> &'a Closures {
    &*user.cast::<Closures>()
}

fn lacks() -> Error {
    Error::new(crate::Code::Internal, "a closure is called that was not given")
}

unsafe extern "C" fn shapes(user: *mut c_void, call: *mut sys::gw_call) -> sys::gw_status {
    run(|| closures(user).shapes.as_ref().ok_or_else(lacks)?(&mut Shapes::new(call)))
}

unsafe extern "C" fn forward(user: *mut c_void, call: *mut sys::gw_call) -> sys::gw_status {
    run(|| closures(user).forward.as_ref().ok_or_else(lacks)?(&mut Call::new(call)))
}

unsafe extern "C" fn backward_input(user: *mut c_void, call: *mut sys::gw_call) -> sys::gw_status {
    run(|| closures(user).backward_input.as_ref().ok_or_else(lacks)?(&mut Call::new(call)))
}

unsafe extern "C" fn backward_weight(user: *mut c_void, call: *mut sys::gw_call) -> sys::gw_status {
    run(|| closures(user).backward_weight.as_ref().ok_or_else(lacks)?(&mut Call::new(call)))
}

/// A panic refuses the dtype, and is the error of the call that asked.
unsafe extern "C" fn accepts(user: *mut c_void, dtype: sys::gw_dtype) -> i32 {
    run_asked(|| closures(user).accepts.as_ref().map_or(true, |f| f(DType(dtype)))) as i32
}
