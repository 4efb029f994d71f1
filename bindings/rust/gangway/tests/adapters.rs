//! Families, adapters, and layers that compute in FP8.
mod common;
use common::alone;
use gangway::*;

fn small() -> Module {
    Decoder::new(&DecoderOptions { dim: 32, layers: 2, heads: 4, vocab: 64, ..Default::default() }).unwrap()
}

fn rows(first: usize, count: usize) -> Array<i64> {
    let tokens = (first..first + count).flat_map(|row| (0..16).map(move |i| ((row * 7 + i * 3) % 64) as i64));
    Array::new(tokens.collect(), &[count, 16]).unwrap()
}

#[test]
fn a_family_has_its_own_defaults() {
    let qwen3 = DecoderOptions::of_family("qwen3").unwrap();
    assert_eq!((qwen3.family.as_str(), qwen3.qk_norm), ("qwen3", QkNorm::Head));
    assert!(Decoder::new(&DecoderOptions { dim: 16, layers: 1, heads: 2, ..qwen3.clone() }).is_ok());
    let error = Decoder::new(&DecoderOptions { qk_norm: QkNorm::None, ..qwen3 }).unwrap_err();
    assert!(error.to_string().contains("in the family qwen3 it is always 1"), "{error}");
    assert!(DecoderOptions::of_family("gpt5").unwrap_err().to_string().contains("\"gpt5\" is unknown"));
}

#[test]
fn adapters_train_and_their_files_load() {
    let folder = std::env::temp_dir().join(format!("gangway-lora-{}", std::process::id()));
    let gangs = alone();
    let options = LoraOptions {
        patterns: vec!["**.q_proj".into(), "**.v_proj".into()],
        rank: 2,
        alpha: 4.0,
        ..Default::default()
    };
    assert_eq!(LoraOptions::default().rank, 8);
    let mut model = small();
    model.lora_apply(&options).unwrap();
    assert_eq!(model.lora_apply(&options).unwrap_err().code, Code::InvalidState);
    model.parallelize(&gangs, &Default::default()).unwrap();
    let mut opt = Sgd::new(&model, &SgdOptions { lr: 0.5, ..Default::default() }).unwrap();
    let tokens = rows(0, 4);
    let base = model.eval_step(&tokens, ()).unwrap().loss;
    for _ in 0..3 {
        model.train_step(&mut opt, &tokens, ()).unwrap();
    }
    let trained = model.eval_step(&tokens, ()).unwrap().loss;
    assert!(trained < base);
    model.lora_enable(false).unwrap();
    assert_eq!(model.eval_step(&tokens, ()).unwrap().loss, base);
    model.lora_enable(true).unwrap();
    model.lora_save(&folder, None, &SaveOptions::default()).unwrap();
    let mut again = small();
    again.lora_apply_folder(&folder, 1).unwrap();
    again.parallelize(&gangs, &Default::default()).unwrap();
    again.lora_load(&folder).unwrap();
    assert_eq!(again.eval_step(&tokens, ()).unwrap().loss, trained);
    assert!(model.save(&folder).is_err());
    model.lora_merge().unwrap();
    model.save(&folder).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn linear_layers_compute_in_fp8() {
    let gangs = alone();
    assert_eq!(Fp8Options::default().scaling, Fp8Scaling::Tensor);
    let losses = |options: Option<Fp8Options>| {
        let mut model = small();
        if let Some(options) = options {
            model.fp8_apply(&options).unwrap();
        }
        model.parallelize(&gangs, &Default::default()).unwrap();
        model.eval_step(&rows(0, 4), ()).unwrap().loss
    };
    let plain = losses(None);
    for scaling in [Fp8Scaling::Tensor, Fp8Scaling::Delayed, Fp8Scaling::Row] {
        let patterns = vec!["model.layers.*.mlp.*".into()];
        let rounded = losses(Some(Fp8Options { scaling, patterns, ..Default::default() }));
        assert!(rounded != plain && (rounded / plain - 1.0).abs() < 0.05);
    }
    let unknown = Fp8Options { patterns: vec!["**.x_proj".into()], ..Default::default() };
    assert_eq!(small().fp8_apply(&unknown).unwrap_err().code, Code::NotFound);
}
