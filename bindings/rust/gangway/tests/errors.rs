mod common;
use common::{meshes, ranks};
use gangway::*;

#[test]
fn every_code_is_its_own_and_unknown_numbers_survive() {
    let codes: Vec<Code> = (1..=16).map(Code::from_number).collect();
    for (i, code) in codes.iter().enumerate() {
        assert_eq!(code.number(), i as i32 + 1);
        assert!(!matches!(code, Code::Unknown(_)) && !codes[..i].contains(code));
        assert_ne!(code.to_string(), "UNKNOWN");
    }
    assert_eq!(Code::from_number(77), Code::Unknown(77));
    assert_eq!((Code::Unknown(77).number(), Code::Unknown(77).to_string()), (77, "UNKNOWN(77)".into()));
}

#[test]
fn refusals_say_component_fact_and_numbers() {
    let gangs = Gangs::fake("cpu").unwrap();
    let error = Gangs::new(gangs.root(), &Mesh::default().tp(3)).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.text.contains("tp 3") && error.text.contains("1 rank"), "{error}");
    assert!(format!("{error:?}").starts_with("INVALID_ARGUMENT: "), "{error:?}");

    let error = Decoder::new(&DecoderOptions { heads: 7, ..Default::default() }).unwrap_err();
    assert!(error.text.contains("heads") && error.text.contains('7'), "{error}");

    let mut model =
        Decoder::new(&DecoderOptions { layers: 1, dim: 32, heads: 2, ..Default::default() }).unwrap();
    let error = AdamW::new(&model, &Default::default()).err().unwrap();
    assert_eq!(error.code, Code::InvalidState);
    model.materialize(None, 0, DType::F32).unwrap();
    let error = model.parameter("model.layers.9.nothing").err().unwrap();
    assert_eq!(error.code, Code::NotFound);
    assert!(error.text.contains("model.layers.9.nothing"), "{error}");
    let error = model.load("/nowhere/model.safetensors").unwrap_err();
    assert!(error.text.contains("/nowhere/model.safetensors"), "{error}");
    assert_eq!(error.io_kind(), Some(std::io::ErrorKind::NotFound));
    assert_eq!(error.path(), Some(std::path::Path::new("/nowhere/model.safetensors")));
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
    let error = gangs.root().native_handle().unwrap_err();
    assert_eq!(error.code, Code::NotSupported);
}

#[test]
fn a_length_that_does_not_fit_is_refused_before_the_call() {
    ranks(2, |gang| {
        let error = gang.all_gather(&[1f32], &mut [0f32; 3]).run().unwrap_err();
        assert_eq!(error.text, format!("{}.all_gather: output has 3 elements, 2 are needed", gang.name()));
        assert_eq!((&error.gang, &error.op[..], error.rank), (&gang.name(), "all_gather", Some(gang.rank())));
        let error = gang.all_to_all(&[1f32; 3], &mut [0f32; 3]).run().unwrap_err();
        assert!(error.text.contains("not a multiple of 2 ranks"), "{error}");
        assert!(gang.async_error().is_ok());
        gang.barrier().run().unwrap();
    });
}

#[test]
fn different_collectives_are_a_mismatch_on_every_rank() {
    ranks(2, |gang| {
        let error = match gang.rank() {
            0 => gang.all_reduce(&mut [1f32; 4], Reduce::Sum).run().unwrap_err(),
            _ => gang.barrier().run().unwrap_err(),
        };
        assert_eq!(error.code, Code::Mismatch, "{error}");
        assert!(error.text.contains("all_reduce") && error.text.contains("barrier"), "{error}");
    });
}

#[test]
fn an_error_knows_gang_rank_and_operation() {
    ranks(2, |gang| {
        let error = match gang.rank() {
            0 => gang.all_reduce(&mut [1f32; 4], Reduce::Sum).run().unwrap_err(),
            _ => gang.all_reduce(&mut [1f32; 5], Reduce::Sum).run().unwrap_err(),
        };
        assert_eq!(error.gang, gang.name(), "{error}");
        assert!(error.op.contains("all_reduce"), "{:?}", error.op);
        assert_eq!(error.rank, Some(gang.rank()));
    });
}

#[test]
fn an_optimizer_steps_its_own_model_only() {
    meshes(1, |gangs| {
        let make = || {
            let mut model = Linear::new(2, 2, false).unwrap();
            model.parallelize(&gangs, &Default::default()).unwrap();
            model
        };
        let (one, mut other) = (make(), make());
        let mut opt = Sgd::new(&one, &Default::default()).unwrap();
        let error = opt.step(&mut other, &Default::default()).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
    });
}

#[test]
fn views_lie_within_their_slices() {
    let values: Vec<f32> = (0..6).map(|i| i as f32).collect();
    assert!(View::new(&values, &[2, 4]).is_err());
    assert!(View::new(&values, &[1; 9]).is_err());
    assert!(View::strided(&values, &[2, 3], &[3, 2]).is_err()); // reaches element 7
    assert!(View::strided(&values, &[usize::MAX, 2], &[usize::MAX, 1]).is_err());
    let turned = View::strided(&values, &[3, 2], &[1, 3]).unwrap();
    assert_eq!(
        turned.slice::<f32>().unwrap_err().text,
        "values is not contiguous: f32 [3, 2] with strides [1, 3]; Tensor::copy makes it so"
    );
    let copy = Tensor::copy(&turned).unwrap();
    assert_eq!(copy.as_view().slice::<f32>().unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let error = copy.as_view().slice::<f64>().unwrap_err();
    assert_eq!(error.text, "tensor has elements of f32, not of f64");
    assert!(Array::new(vec![1u8; 3], &[2]).is_err());
    assert_eq!(View::new::<u8>(&[], &[0, 4]).unwrap().slice::<u8>().unwrap(), []);
}

#[test]
fn a_text_with_a_zero_byte_is_refused() {
    let error = Gangs::fake("cpu\0").unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    let mut model = Linear::new(1, 1, false).unwrap();
    assert!(model.freeze("a\0b").is_err() && model.save("a\0b").is_err());
}

#[test]
fn the_library_says_what_it_is() {
    assert!(version() >= (0, 1, 0) && abi_version().0 >= 0);
    assert!(config_text().unwrap().contains("GANGWAY_TIMEOUT_MS"));
    let memory = host_memory().unwrap();
    assert!(memory.used > 0 && memory.used <= memory.total && memory.available <= memory.total, "{memory:?}");
    let (text, next) = log_read(0).unwrap();
    assert_eq!(text.lines().count() == 0, next == 0);
}

#[test]
fn the_interrupt_hook_ends_a_wait() {
    ranks(2, |gang| {
        let side = gang.duplicate().unwrap();
        if gang.rank() == 0 {
            let work = gang.all_reduce(vec![1f32], Reduce::Sum).start().unwrap();
            set_interrupt(|| true).unwrap();
            let error = work.wait().unwrap_err(); // rank 1 comes later
            clear_interrupt().unwrap();
            assert_eq!(error.code, Code::Caller, "{error}");
        }
        side.barrier().run().unwrap();
        if gang.rank() == 1 {
            gang.all_reduce(&mut [1f32], Reduce::Sum).run().unwrap();
        }
        side.barrier().run().unwrap();
    });
}
