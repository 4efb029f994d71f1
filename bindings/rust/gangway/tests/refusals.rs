//! What is refused, and that the text names the argument and the reason; strided views that are taken.
use gangway::*;
use std::os::raw::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

fn language_model() -> (Module, Optimizer) {
    let options = DecoderOptions { dim: 16, layers: 1, heads: 2, vocab: 16, ..Default::default() };
    let mut model = Decoder::new(&options).unwrap();
    model.parallelize(&Gangs::fake("cpu").unwrap(), &Default::default()).unwrap();
    let opt = AdamW::new(&model, &Default::default()).unwrap();
    (model, opt)
}

fn expect(error: Error, parts: &[&str]) {
    assert_eq!(error.code, Code::InvalidArgument, "{error}");
    assert!(parts.iter().all(|part| error.text.contains(part)), "{error}");
}

#[test]
fn a_batch_of_the_wrong_type_or_shape_is_refused_by_name() {
    let (mut model, mut opt) = language_model();
    let tokens = Array::new(vec![1i64; 8], &[2, 4]).unwrap();
    let floats = Array::new(vec![1f32; 8], &[2, 4]).unwrap();
    expect(
        model.train_step(&mut opt, &floats, &tokens).unwrap_err(),
        &["Decoder: tokens are f32 [2, 4]", "i64"],
    );
    expect(model.train_step(&mut opt, (), &tokens).unwrap_err(), &["input"]);
    let short = Array::new(vec![1i64; 4], &[1, 4]).unwrap();
    expect(model.train_step(&mut opt, &tokens, &short).unwrap_err(), &["targets[0]", "2", "1"]);
    let refused = model.assign("lm_head.weight", &floats).unwrap_err();
    expect(refused, &["lm_head.weight", "2", "4", "16"]);
    let numbers = Array::new(vec![1i32; 256], &[16, 16]).unwrap();
    expect(
        model.assign("lm_head.weight", &numbers).unwrap_err(),
        &["lm_head.weight is f32", "but the values are i32"],
    );
    let tokens = Array::new(vec![1i64, 2, 3, 4], &[1, 4]).unwrap();
    let next = Array::new(vec![2i64, 3, 4, -100], &[1, 4]).unwrap();
    let step = |model: &mut Module, batch: Batch<'_>| model.eval_step_with(&batch, &Default::default());
    expect(step(&mut model, Batch::new(&tokens, &tokens)).unwrap_err(), &["is its own token"]);
    let twice = Batch::new(&tokens, &next).shift_labels(true);
    expect(step(&mut model, twice).unwrap_err(), &["is the next token already"]);
    let loss = step(&mut model, Batch::new(&tokens, ())).unwrap().loss;
    assert_eq!(step(&mut model, Batch::new(&tokens, &next)).unwrap().loss, loss);
    assert_eq!(step(&mut model, Batch::new(&tokens, &tokens).shift_labels(true)).unwrap().loss, loss);
    model.train_step(&mut opt, &tokens, ()).unwrap(); // nothing is broken
}

#[test]
fn values_are_not_kept_by_more_ranks_than_share_them() {
    let mut model = Linear::new(2, 2, false).unwrap();
    let shard = ShardOptions { reshard_after_forward: 2, ..Default::default() };
    let refused = model
        .parallelize(&Gangs::fake("cpu").unwrap(), &ParallelOptions { shard, ..Default::default() })
        .unwrap_err();
    expect(refused, &["reshard_after_forward is 2, which is no factor of the 1 ranks"]);
}

/// A module whose forward asks for elements in its own way; what that gives.
fn asked(ask: impl Fn(&Call<'_>) -> Result<()> + Send + 'static, x: View<'_>) -> Error {
    let shapes = |call: &mut Shapes<'_>| call.output(0, DType::F32, &[1]);
    let custom = Custom::new("asks").shapes(shapes).forward(move |call| ask(call)).backward_input(|_| Ok(()));
    let mut model = custom.parameter(ParameterOptions::new("w", &[2])).build().unwrap();
    model.materialize(None, 0, DType::F32).unwrap();
    model.forward(&x, None).unwrap_err()
}

#[test]
fn a_view_is_refused_by_the_name_of_the_argument_that_it_is() {
    let x = [0f32; 6];
    let dense = View::new(&x, &[2, 3]).unwrap();
    let error = asked(|call| call.inputs[0].slice::<i32>().map(|_| ()), dense);
    assert_eq!(error.text, "inputs[0] has elements of f32, not of i32");
    let error = asked(|call| call.parameters[0].slice::<f64>().map(|_| ()), dense);
    assert_eq!(error.text, "parameters[0] has elements of f32, not of f64");
    let error = asked(|call| call.outputs[0].slice::<f64>().map(|_| ()), dense);
    assert_eq!(error.text, "outputs[0] has elements of f32, not of f64");
    let turned = View::strided(&x, &[3, 2], &[1, 3]).unwrap();
    expect(turned.slice::<f32>().unwrap_err(), &["values is not contiguous", "[3, 2]", "strides [1, 3]"]);
    expect(View::new(&x, &[2, 4]).unwrap_err(), &["values has 6 elements", "shape [2, 4] needs 8"]);
    let error = View::strided(&x, &[2, 3], &[3, 2]).unwrap_err();
    expect(error, &["values has 6 elements, too few", "[2, 3]", "strides [3, 2]"]);
    expect(View::strided(&x, &[2, 3], &[3]).unwrap_err(), &["shape has 2 dims", "strides has 1"]);
    let tensor = Tensor::copy(&dense).unwrap();
    expect(tensor.as_view().slice::<u8>().unwrap_err(), &["tensor has elements of f32, not of u8"]);
    let mut model = Linear::new(2, 2, false).unwrap();
    model.materialize(None, 0, DType::F32).unwrap();
    let weight = model.parameter("weight").unwrap();
    let error = weight.view(Part::Value).unwrap().slice::<i64>().unwrap_err();
    expect(error, &["parameter has elements of f32, not of i64"]);
}

#[test]
fn lengths_are_refused_by_gang_call_and_argument() {
    let gang = Gang::fake(0, 3, &Default::default()).unwrap();
    let (one, mut two) = ([1f32], [0f32; 2]);
    let said = |error: Error, text: &str| assert_eq!(error.text, format!("{}.{text}", gang.name()));
    let error = gang.all_reduce_into(&one, &mut two, Reduce::Sum).run().unwrap_err();
    said(error, "all_reduce: output has 2 elements, 1 are needed");
    let error = gang.reduce_scatter(&one, &mut two, Reduce::Sum).run().unwrap_err();
    said(error, "reduce_scatter: input has 1 elements, 6 are needed");
    let (mut a, mut b, mut c) = ([0f32], [0f32], [0f32; 2]);
    let error = gang.all_gather_list(&one, [&mut a[..], &mut b[..], &mut c[..]]).run().unwrap_err();
    said(error, "all_gather_list: outputs[2] has 2 elements, 1 are needed");
    said(gang.gather(&one, None::<Vec<f32>>, 0).run().unwrap_err(), "gather: output is None on the root");
    let error = gang.scatter(Some(vec![1f32]), vec![0f32], 0).start().err().unwrap();
    said(error, "scatter: input has 1 elements, 3 are needed");
    let error = gang.all_to_all(&one, &mut [0f32]).run().unwrap_err();
    said(error, "all_to_all: input has 1 elements, not a multiple of 3 ranks");
}

#[test]
fn what_a_collective_does_not_take_is_refused() {
    let gang = Gang::fake(0, 3, &Default::default()).unwrap();
    let (one, mut three, counts) = ([1f32], [0f32; 3], [1, 1, 1]);
    let error = gang.broadcast(&mut three, 0).counts(&counts).run().unwrap_err();
    expect(error, &["broadcast: takes one count, not counts per rank"]);
    let error = gang.all_gather(&one, &mut three).recv_counts(&counts).run().unwrap_err();
    expect(error, &["all_gather: takes one list of counts"]);
    let error = gang.all_to_all(&[1f32; 3], &mut three).recv_counts(&counts).run().unwrap_err();
    expect(error, &["all_to_all: has recv_counts without counts"]);
    let error = gang.all_to_all(&[1f32; 3], &mut three).counts(&counts).recv_counts(&[3]).run().unwrap_err();
    expect(error, &["all_to_all: recv_counts has 1 elements, 3 are needed"]);
    let error = gang.all_gather(&one, &mut three).accumulate().run().unwrap_err();
    expect(error, &["all_gather", "accumulates nothing"]);
    let error = gang.all_gather_in_place(&mut [0f32; 4]).run().unwrap_err();
    expect(error, &["all_gather: output has 4 elements, not a multiple of 3 ranks"]);
}

#[test]
fn rows_cut_out_of_a_longer_array_train_like_a_dense_copy() {
    let long: Vec<i64> = (0..24).map(|i| i % 16).collect();
    let cut = View::strided(&long, &[3, 4], &[8, 1]).unwrap(); // the first half of three rows of eight
    let dense: Vec<i64> = (0..12).map(|i| ((i / 4 * 8 + i % 4) % 16) as i64).collect();
    let dense = Array::new(dense, &[3, 4]).unwrap();
    let losses = |inputs: &dyn AsView| {
        let (mut model, mut opt) = language_model();
        [(); 3].map(|_| model.train_step(&mut opt, [inputs], ()).unwrap().loss.to_bits())
    };
    assert_eq!(losses(&cut), losses(&dense));
}

/// `DLManagedTensorVersioned`, as DLPack lays it out.
#[repr(C)]
struct Managed {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
    flags: u64,
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    code_bits_lanes: u32,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

static DELETED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn delete(_: *mut Managed) {
    DELETED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_tensor_of_another_device_or_version_is_refused_and_stays_its_owner_s() {
    const F32: u32 = 2 | (32 << 8) | (1 << 16);
    let (mut values, shape) = ([1f32, 2.0], [2i64]);
    let mut managed = Managed {
        version: [1, 0],
        context: std::ptr::null_mut(),
        deleter: Some(delete),
        flags: 1, // read-only
        data: values.as_mut_ptr().cast(),
        device: [2, 0],
        ndim: 1,
        code_bits_lanes: F32,
        shape: shape.as_ptr(),
        strides: std::ptr::null(),
        byte_offset: 0,
    };
    let take = |managed: &mut Managed| unsafe { Tensor::from_dlpack((managed as *mut Managed).cast()) };
    let error = take(&mut managed).unwrap_err();
    assert!(error.text.contains("device type 2, wanted is cpu"), "{error}");
    managed.device = [1, 0];
    managed.version = [9, 0];
    assert!(take(&mut managed).unwrap_err().text.contains("version"));
    managed.version = [1, 0];
    managed.code_bits_lanes = F32 + (1 << 16);
    assert!(take(&mut managed).unwrap_err().text.contains("lanes"));
    assert_eq!(DELETED.load(Ordering::SeqCst), 0);
    managed.code_bits_lanes = F32;
    let tensor = take(&mut managed).unwrap();
    assert!(tensor.is_read_only() && tensor.as_view().slice::<f32>().unwrap() == [1.0, 2.0]);
    drop(tensor.clone());
    assert_eq!(DELETED.load(Ordering::SeqCst), 0);
    drop(tensor);
    assert_eq!(DELETED.load(Ordering::SeqCst), 1);
}

#[test]
fn exports_outlive_parameter_optimizer_and_model() {
    let (mut model, mut opt) = language_model();
    let tokens = Array::new(vec![1i64, 2, 3, 4], &[1, 4]).unwrap();
    model.train_step(&mut opt, &tokens, ()).unwrap();
    let (value, state) = {
        let head = model.parameter("lm_head.weight").unwrap();
        (head.export(Part::Value).unwrap(), head.export_state(&opt, "exp_avg").unwrap())
    };
    let before = model.parameter("lm_head.weight").unwrap().gather().unwrap();
    drop((model, opt));
    let [value, state] = [value, state].map(|made| unsafe { Tensor::from_dlpack(made.as_ptr()) }.unwrap());
    assert_eq!(value.as_view().slice::<f32>().unwrap(), before.as_view().slice::<f32>().unwrap());
    assert!(state.as_view().slice::<f32>().unwrap().iter().any(|m| *m != 0.0));
    assert_eq!(state.as_view().shape(), value.as_view().shape());
}

#[test]
fn handles_are_sent_and_shared_by_contract() {
    fn sent<T: Send>(_: Option<T>) {}
    fn shared<T: Send + Sync>(_: Option<T>) {}
    shared::<(Gang, Gangs, Store, Tensor, GangMemory<f32>)>(None);
    sent::<(Module, Optimizer, ShardGroup, Work<Vec<f32>>)>(None);
}
