mod common;
use common::{alone, lent, meshes, ranks, values};
use gangway::*;
use std::path::PathBuf;

fn small() -> Module {
    Decoder::new(&DecoderOptions { dim: 32, layers: 2, heads: 4, vocab: 64, ..Default::default() }).unwrap()
}

fn rows(first: usize, count: usize) -> Array<i64> {
    let tokens = (first..first + count).flat_map(|row| (0..16).map(move |i| ((row * 7 + i * 3) % 64) as i64));
    Array::new(tokens.collect(), &[count, 16]).unwrap()
}

/// The losses of three steps over a global batch of four rows.
fn losses(gangs: &Gangs, options: &ParallelOptions) -> Vec<f64> {
    let mut model = small();
    model.parallelize(gangs, options).unwrap();
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 1e-2, ..Default::default() }).unwrap();
    let (index, count) = gangs.data_shard().unwrap();
    let tokens = rows(4 / count * index, 4 / count);
    (0..3)
        .map(|_| {
            let result = model.train_step(&mut opt, &tokens, ()).unwrap();
            assert!(!result.skipped && result.skip_reason == SkipReason::None && result.weight == 4 * 15);
            result.loss
        })
        .collect()
}

#[test]
fn a_llama_trains_the_same_over_one_two_and_four_ranks() {
    for strategy in [Strategy::FullShard, Strategy::ShardGradOp, Strategy::NoShard] {
        let of = move |ranks| {
            meshes(ranks, move |gangs| {
                let shard = ShardOptions { strategy, ..Default::default() };
                losses(&gangs, &ParallelOptions { shard, seed: 3, ..Default::default() })
            })
        };
        let one = of(1).remove(0);
        assert!(one[2] < one[0]);
        for losses in of(2).into_iter().chain(of(4)) {
            for (loss, alone) in losses.iter().zip(&one) {
                assert!((loss - alone).abs() < 1e-4, "{losses:?} {one:?}");
            }
        }
    }
}

#[test]
fn options_hold_the_library_s_defaults() {
    let llama = DecoderOptions::default();
    assert_eq!((llama.vocab, llama.dim, llama.layers, llama.heads, llama.tied), (256, 256, 4, 8, false));
    let adamw = AdamWOptions::default();
    assert_eq!((adamw.lr, adamw.beta2, adamw.schedule), (1e-3, 0.999, Schedule::Constant));
    assert_eq!(Mesh::default().tp(2), Mesh { dp_shard: -1, tp: 2, pp: 1, dp_replicate: 1, cp: 1 });
    assert_eq!(StepOptions::default().microbatches, 1);
    assert_eq!(GenerateOptions::default().token_count, 64);
    assert_eq!(ShardOptions::default().strategy, Strategy::FullShard);
    assert_eq!(Rule::default().weight_decay, -1.0);
}

#[test]
fn parameters_are_found_gathered_and_assigned() {
    meshes(2, |gangs| {
        let mut model = small();
        model.parallelize(&gangs, &ParallelOptions { seed: 1, ..Default::default() }).unwrap();
        let name = "model.layers.1.mlp.up_proj.weight";
        let info = model.parameter(name).unwrap().info().unwrap();
        assert_eq!((info.name.as_str(), info.dtype, info.trainable), (name, DType::F32, true));
        assert!(info.layout.contains("Shard(0)"), "{}", info.layout);
        let names: Vec<_> =
            model.parameters().unwrap().iter().map(|parameter| parameter.info().unwrap().name).collect();
        assert_eq!(names.len(), model.parameter_count().unwrap());
        assert!(names.iter().any(|known| known == name));

        let dims: Vec<usize> = info.dims.iter().map(|dim| *dim as usize).collect();
        let values: Vec<f32> = (0..dims.iter().product::<usize>()).map(|i| i as f32).collect();
        model.assign(name, &View::new(&values, &dims).unwrap()).unwrap();
        let parameter = model.parameter(name).unwrap();
        assert_eq!(common::values::<f32>(&parameter.gather().unwrap()), values);
        let own = info.rows.start as usize * dims[1]..info.rows.end as usize * dims[1];
        if let Some(rows) = lent::<f32>(parameter.view(Part::Value).unwrap()) {
            assert_eq!(rows, &values[own]);
        }
        let memory = model.memory().unwrap();
        assert!(memory.master + memory.region_rows > 0, "{memory:?}");
        assert!(format!("{model:?}").contains(name));
    });
}

#[test]
fn an_optimizer_shows_its_state() {
    meshes(2, |gangs| {
        let mut model = small();
        model.freeze("model.embed_tokens.weight").unwrap();
        model.parallelize(&gangs, &Default::default()).unwrap();
        let rule = Rule { pattern: "lm_head.weight".into(), lr_scale: 0.0, ..Default::default() };
        let options = AdamWOptions { weight_decay: 0.1, rules: vec![rule], ..Default::default() };
        let mut opt = AdamW::new(&model, &options).unwrap();
        let before = model.parameter("lm_head.weight").unwrap().gather().unwrap();
        let tokens = rows(gangs.root().rank(), 1);
        let batch = Batch::new(&tokens, ());
        let step = StepOptions { max_grad_norm: 1.0, ..Default::default() };
        let result = model.train_step_with(&mut opt, &batch, &step).unwrap();
        assert!(result.grad_norm > 0.0 && result.lr == options.lr && opt.steps().unwrap() == 1);
        let head = model.parameter("lm_head.weight").unwrap();
        let after = head.gather().unwrap();
        assert_eq!(values::<f32>(&before), values::<f32>(&after));
        if let Some(moments) = lent::<f32>(head.state(&opt, "exp_avg").unwrap()) {
            assert!(moments.iter().any(|m| *m != 0.0));
        }
        assert!(model.memory().unwrap().optimizer > 0);
        assert_eq!(head.state(&opt, "nothing").unwrap_err().code, Code::NotFound);
        drop(head);
        opt.set_lr(0.5).unwrap();
        assert_eq!(opt.lr().unwrap(), 0.5);
    });
}

#[test]
fn what_was_saved_loads_on_another_number_of_ranks() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("models_saved");
    let (to, from) = (folder.clone(), folder.clone());
    let one = meshes(2, move |gangs| {
        let mut model = small();
        model.parallelize(&gangs, &ParallelOptions { seed: 5, ..Default::default() }).unwrap();
        model.save(&to).unwrap();
        model.eval_step(&rows(0, 2), ()).unwrap().loss
    });
    let other = meshes(1, move |gangs| {
        let mut model = small();
        model.parallelize(&gangs, &ParallelOptions { seed: 6, ..Default::default() }).unwrap();
        model.load_with(&from, &LoadOptions::default()).unwrap();
        model.eval_step(&rows(0, 2), ()).unwrap().loss
    });
    assert!((one[0] - other[0]).abs() < 1e-5 && one[0] == one[1], "{one:?} {other:?}");
    assert!(folder.join("config.json").exists());
}

/// The values themselves are held against transformers' by the tests of C++ and Python.
#[test]
fn a_folder_of_hugging_face_is_a_model_in_one_call() {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/folders/llama3_bf16_sharded");
    let options = DecoderOptions::from_folder(&folder).unwrap();
    assert_eq!((options.vocab, options.dim, options.heads, options.kv_heads), (19, 24, 4, 2));
    assert_eq!((options.rope_theta, options.rope_factor, options.rope_original_positions), (5000.0, 4.0, 16));
    let losses = meshes(2, move |gangs| {
        let tokens = Array::new((0..16).collect::<Vec<i64>>(), &[2, 8]).unwrap();
        let mut one = from_pretrained(&folder, &gangs, &Default::default()).unwrap();
        let mut other = Decoder::new(&DecoderOptions::from_folder(&folder).unwrap()).unwrap();
        other.parallelize(&gangs, &Default::default()).unwrap();
        other.load(&folder).unwrap();
        let loss = |model: &mut Module| model.eval_step(&tokens, ()).unwrap().loss;
        (loss(&mut one), loss(&mut other))
    });
    assert!(losses.iter().all(|(one, other)| one == other && *one == losses[0].0), "{losses:?}");
    let error = DecoderOptions::from_folder("/nowhere").unwrap_err();
    assert_eq!(error.io_kind(), Some(std::io::ErrorKind::NotFound));
}

#[test]
fn every_rank_generates_the_same() {
    let texts = meshes(2, |gangs| {
        let mut model = small();
        model.parallelize(&gangs, &ParallelOptions { seed: 1, ..Default::default() }).unwrap();
        let options = GenerateOptions { token_count: 10, seed: 4, ..Default::default() };
        model.generate(&[1, 2, 3], &options).unwrap()
    });
    assert_eq!(texts[0].len(), 10);
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn manual_forward_and_backward_of_layers() {
    meshes(2, |gangs| {
        let layers = vec![Linear::new(3, 4, true).unwrap(), Linear::new(4, 2, false).unwrap()];
        let mut model = Sequential::new(layers).unwrap();
        model.fully_shard("", &gangs, &ShardOptions::default()).unwrap();
        model.materialize(&gangs, 1, DType::NONE).unwrap();
        // y = (x A^T + b) C^T by small whole numbers, which are exact in f32; this rank gives its rows of A alone.
        let (a, b): (Vec<f32>, _) = ((0..12).map(|i| (i % 5) as f32 - 2.0).collect(), [1f32, -1.0, 2.0, 0.0]);
        let c = [1f32, 0.0, 2.0, -1.0, 3.0, 1.0, 0.0, 1.0];
        let own = model.parameter("0.weight").unwrap().info().unwrap().rows;
        let own = own.start as usize..own.end as usize;
        let rows = View::new(&a[own.start * 3..own.end * 3], &[own.len(), 3]).unwrap();
        model.assign("0.weight", &rows).unwrap();
        model.assign("0.bias", &View::new(&b, &[4]).unwrap()).unwrap();
        model.assign("1.weight", &View::new(&c, &[2, 4]).unwrap()).unwrap();
        let data = [1f32, 2.0, 3.0, 0.0, -1.0, 4.0];
        let x = View::new(&data, &[2, 3]).unwrap();
        let hidden =
            |row: usize, j: usize| (0..3).map(|k| data[3 * row + k] * a[3 * j + k]).sum::<f32>() + b[j];
        let wanted: Vec<f32> =
            (0..4).map(|i| (0..4).map(|j| hidden(i / 2, j) * c[4 * (i % 2) + j]).sum()).collect();
        let mut frame = Frame::new(&model, &FrameOptions::default()).unwrap();
        let y = model.forward(&x, Some(&mut frame)).unwrap();
        assert_eq!((y[0].as_view().shape(), values::<f32>(&y[0])), (&[2, 2][..], wanted));
        let evaluated = model.forward(&x, None).unwrap();
        assert_eq!(values::<f32>(&evaluated[0]), values::<f32>(&y[0]));
        let dx = model.backward(&Array::new(vec![1f32; 4], &[2, 2]).unwrap(), &mut frame).unwrap();
        let dx = dx[0].as_ref().unwrap();
        let through = |j: usize| c[j] + c[4 + j]; // of ones
        let wanted: Vec<f32> = (0..6).map(|i| (0..4).map(|j| through(j) * a[3 * j + i % 3]).sum()).collect();
        assert_eq!((dx.as_view().shape(), values::<f32>(dx)), (&[2, 3][..], wanted));
        let gathered = |name: &str| values::<f32>(&model.parameter(name).unwrap().gather_gradient().unwrap());
        // Two rows on each of two ranks.
        assert_eq!(gathered("0.bias"), (0..4).map(|j| 4.0 * through(j)).collect::<Vec<_>>());
        let of_c: Vec<f32> = (0..8).map(|i| 2.0 * (hidden(0, i % 4) + hidden(1, i % 4))).collect();
        assert_eq!(gathered("1.weight"), of_c);
        let norm = model.clip_grad_norm(1e-3, 2.0).unwrap();
        assert!(norm > 1e-3 && model.clip_grad_norm(1e9, 2.0).unwrap() < 1.1e-3);
        model.zero_grad().unwrap();
        assert_eq!(model.clip_grad_norm(1.0, 2.0).unwrap(), 0.0);
        frame.reset().unwrap();
    });
}

#[test]
fn texts_say_what_is_wrong_and_what_to_do() {
    let mut model = small();
    let gangs = alone();
    model.parallelize(&gangs, &Default::default()).unwrap();
    let twice = model.parallelize(&gangs, &Default::default()).unwrap_err();
    assert!(twice.code == Code::InvalidState && twice.text.contains("parallelize"), "{twice}");
    let tokens = Array::new(vec![1i32; 8], &[2, 4]).unwrap();
    let labels = Array::new(vec![1i64; 8], &[2, 4]).unwrap();
    let error = model.eval_step(&tokens, &labels).unwrap_err();
    assert!(error.text.contains("tokens are i32 [2, 4], wanted i64"), "{error}");
    let error = model.eval_step(&labels, &tokens).unwrap_err();
    assert!(error.text.contains("targets[0] is i32, but labels are i64"), "{error}");
    let error = Decoder::new(&DecoderOptions { dim: -4, ..Default::default() }).unwrap_err();
    assert!(error.text.contains("dim is -4, but must be 1 or more"), "{error}");
    let error = model.generate(&[1], &GenerateOptions { token_count: -4, ..Default::default() }).unwrap_err();
    assert!(error.text.contains("token_count is -4"), "{error}");
}

#[test]
fn what_cannot_be_learned_from_is_skipped_and_said() {
    meshes(2, |gangs| {
        let mut model = small();
        model.parallelize(&gangs, &Default::default()).unwrap();
        let mut opt = Sgd::new(&model, &Default::default()).unwrap();
        let (tokens, none) = (rows(0, 2), Array::new(vec![-100i64; 32], &[2, 16]).unwrap());
        let result = model.train_step(&mut opt, &tokens, &none).unwrap();
        assert!(result.loss.is_nan() && result.skip_reason == SkipReason::NoWeight, "{result:?}");
        let step = StepOptions { norm_type: 65.0, max_grad_norm: 1.0, ..Default::default() };
        let error = model.train_step_with(&mut opt, &Batch::new(&tokens, ()), &step).unwrap_err();
        assert!(error.code == Code::InvalidArgument && error.text.contains("= 65 is over 64"), "{error}");
        let error = model.clip_grad_norm(1.0, 65.0).unwrap_err();
        assert!(error.code == Code::InvalidArgument && error.text.contains("= 65 is over 64"), "{error}");
        let before = model.parameter("model.norm.weight").unwrap().gather().unwrap();
        model.assign("lm_head.weight", &View::new(&[f32::NAN; 64 * 32], &[64, 32]).unwrap()).unwrap();
        let result = model.train_step(&mut opt, &tokens, ()).unwrap();
        assert!(result.skipped && result.skip_reason == SkipReason::NonFinite, "{result:?}");
        assert!(result.loss.is_nan() && opt.steps().unwrap() == 0, "{result:?}");
        let after = model.parameter("model.norm.weight").unwrap().gather().unwrap();
        assert_eq!(values::<f32>(&before), values::<f32>(&after));
    });
}

#[test]
fn every_layer_describes_itself() {
    let attention = AttentionOptions { dim: 16, heads: 2, ..Default::default() };
    let blocks = [
        Embedding::new(5, 4),
        RmsNorm::new(4, 1e-5),
        Attention::new(&attention),
        Mlp::new(4, 8, false),
        LayerNorm::new(4, 1e-5),
        Activate::new(Activation::Gelu),
        Dropout::new(0.1),
        FeedForward::new(&FeedForwardOptions {
            dim: 4,
            ffn: 8,
            plain: true,
            bias: true,
            ..Default::default()
        }),
        Block::new(&attention, 32, 1e-5),
    ];
    let counts = blocks.map(|block| block.unwrap().parameter_count().unwrap());
    assert_eq!(counts, [1, 1, 4, 3, 2, 0, 0, 4, 9]);
}

#[test]
fn precision_and_recomputation_are_options() {
    meshes(2, |gangs| {
        let rule = DTypeRule { pattern: "**norm.weight".into(), dtype: DType::F32 };
        let options = ParallelOptions {
            shard: ShardOptions { param_dtype: DType::BF16, dtype_rules: vec![rule], ..Default::default() },
            recompute: Recompute::Selective,
            ..Default::default()
        };
        let losses = losses(&gangs, &options);
        assert!(losses[2] < losses[0], "{losses:?}");
    });
}

#[test]
fn f16_trains_with_a_dynamic_loss_scale() {
    meshes(2, |gangs| {
        let mut model = small();
        let shard = ShardOptions { param_dtype: DType::F16, ..Default::default() };
        model.parallelize(&gangs, &ParallelOptions { seed: 5, shard, ..Default::default() }).unwrap();
        let options = AdamWOptions { lr: 0.01, loss_scale_interval: 2, ..Default::default() };
        assert_eq!((options.loss_scale, options.initial_loss_scale), (0.0, 65536.0));
        let mut opt = AdamW::new(&model, &options).unwrap();
        assert_eq!(opt.loss_scale().unwrap(), 65536.0);
        opt.set_loss_scale(1024.0).unwrap();
        let tokens = rows(gangs.root().rank(), 1);
        let results = [0; 3].map(|_| model.train_step(&mut opt, &tokens, ()).unwrap());
        assert!(results[2].loss < results[0].loss, "{results:?}");
        assert_eq!(results.map(|r| r.loss_scale), [1024.0, 1024.0, 2048.0]);
        opt.set_loss_scale(16777216.0).unwrap();
        let result = model.train_step(&mut opt, &tokens, ()).unwrap();
        assert!(result.skip_reason == SkipReason::NonFinite && result.loss.is_finite(), "{result:?}");
        assert_eq!((result.loss_scale, opt.loss_scale().unwrap()), (16777216.0, 8388608.0));
        let error = opt.set_loss_scale(-1.0).unwrap_err();
        assert!(error.code == Code::InvalidArgument && error.text.contains("loss scale = -1"), "{error}");
    });
}

#[test]
fn a_fixed_loss_scale_changes_no_bits() {
    meshes(2, |gangs| {
        let losses = [0.0, 4096.0].map(|loss_scale| {
            let mut model = small();
            model.parallelize(&gangs, &ParallelOptions { seed: 5, ..Default::default() }).unwrap();
            let mut opt =
                Sgd::new(&model, &SgdOptions { lr: 0.1, loss_scale, ..Default::default() }).unwrap();
            let tokens = rows(gangs.root().rank(), 1);
            [0; 3].map(|_| model.train_step(&mut opt, &tokens, ()).unwrap().loss)
        });
        assert_eq!(losses[0], losses[1]);
    });
}

#[test]
fn replicas_that_differ_are_told_by_element() {
    meshes(2, |gangs| {
        let mut model = Linear::new(3, 2, false).unwrap();
        let shard = ShardOptions { strategy: Strategy::NoShard, ..Default::default() };
        model.parallelize(&gangs, &ParallelOptions { shard, ..Default::default() }).unwrap();
        model.check_replicas().unwrap();
        let mut whole = vec![1f32; 6];
        whole[5] = gangs.root().rank() as f32;
        model.assign("weight", &Array::new(whole, &[2, 3]).unwrap()).unwrap();
        let error = model.check_replicas().unwrap_err();
        assert_eq!(error.code, Code::Mismatch, "{error}");
        assert!(error.text.contains("weight[1, 2] is 0 on rank 0, 1 on rank 1"), "{error}");
    });
}

/// Two linears, split first by columns, then by rows.
fn linears() -> Module {
    Sequential::new(vec![Linear::new(6, 8, true).unwrap(), Linear::new(8, 6, true).unwrap()]).unwrap()
}

/// The weights after two steps.
fn trained(model: &mut Module) -> Vec<Vec<f64>> {
    let mut opt = Sgd::new(model, &SgdOptions { lr: 0.1, ..Default::default() }).unwrap();
    for step in 0..2 {
        let x: Vec<f64> = (0..12).map(|i| (i as f64 + step as f64).sin()).collect();
        let mut frame = Frame::new(model, &FrameOptions::default()).unwrap();
        let y = model.forward(&Array::new(x, &[2, 1, 6]).unwrap(), Some(&mut frame)).unwrap();
        model.backward(&y[0], &mut frame).unwrap();
        opt.step(model, &StepOptions::default()).unwrap();
    }
    let whole = |name| model.parameter(name).unwrap().gather().unwrap();
    ["0.weight", "1.weight"].map(|name| values(&whole(name))).into()
}

#[test]
fn a_plan_trains_the_same_as_text_as_rows_and_call_by_call() {
    ranks(2, |root| {
        let gangs = Gangs::parallel(&root, 2, 1, 1).unwrap();
        let text =
            TensorParallelOptions { plan: Some("0 -> colwise\n1 -> rowwise".into()), ..Default::default() };
        let second = PlanRow { output: Some(Placement::Replicate), ..PlanRow::new("1", Style::Rowwise) };
        let rows = TensorParallelOptions {
            rows: vec![PlanRow::new("0", Style::Colwise), second],
            ..Default::default()
        };
        let whole = |tensor_parallel: &TensorParallelOptions| {
            let mut model = linears();
            let tensor_parallel = tensor_parallel.clone();
            let options =
                ParallelOptions { tensor_parallel, master_dtype: DType::F64, seed: 5, ..Default::default() };
            model.parallelize(&gangs, &options).unwrap();
            assert!(model.parameter("1.weight").unwrap().info().unwrap().layout.starts_with("tp: Shard(1)"));
            trained(&mut model)
        };
        let mut pieces = linears();
        pieces.tensor_parallel(&gangs, &rows).unwrap();
        pieces.fully_shard("", None, &ShardOptions::default()).unwrap();
        pieces.materialize(None, 5, DType::F64).unwrap();
        let wanted = whole(&text);
        assert_eq!(whole(&rows), wanted);
        assert_eq!(trained(&mut pieces), wanted);
    });
}

#[test]
fn calls_out_of_order_name_the_call_that_comes_first() {
    let root = Gang::fake(0, 2, &GangOptions::default()).unwrap();
    let gangs = Gangs::parallel(&root, 1, 1, 2).unwrap();
    let mut model = small();
    let error = model.fully_shard("", &gangs, &ShardOptions::default()).unwrap_err();
    assert!(
        error.code == Code::InvalidState && error.text.contains("context_parallel comes first"),
        "{error}"
    );
    model.context_parallel(&gangs, ContextMethod::AllToAll).unwrap();
    model.fully_shard("", None, &ShardOptions::default()).unwrap();
    let error = model.context_parallel(None, ContextMethod::Ring).unwrap_err();
    assert!(error.text.contains("comes before fully_shard"), "{error}");
    let plan = TensorParallelOptions { plan: Some("0 -> up".into()), ..Default::default() };
    let error = linears().tensor_parallel(None, &plan).unwrap_err();
    assert!(error.text.contains("plan line 1 \"0 -> up\""), "{error}");
    let plan = TensorParallelOptions { overlap_chunks: 0, ..Default::default() };
    let error = linears().tensor_parallel(None, &plan).unwrap_err();
    assert!(error.text.contains("overlap_chunks is 0"), "{error}");
}

#[test]
fn a_step_over_a_mesh_is_that_of_one_rank() {
    for found in meshes(2, |gangs| {
        let (index, _) = gangs.data_shard().unwrap();
        let tokens = rows(2 * index, 2);
        verify(&gangs, || Ok(small()), &Batch::new(&tokens, ()), &VerifyOptions::default()).unwrap()
    }) {
        assert!((found.loss - found.mesh_loss).abs() < 1e-12 && found.parameters == 21);
    }
    let mut built = 0;
    let other = || {
        built += 1;
        Linear::new(2, built, false)
    };
    let tokens = rows(0, 1);
    let error = verify(None, other, &Batch::new(&tokens, ()), &VerifyOptions::default()).unwrap_err();
    assert!(error.text.contains("built another model the second time"), "{error}");
}

#[test]
fn a_step_takes_weights_of_labels_and_gives_log_probabilities_and_norms_of_gradients() {
    let mut model = small();
    model.materialize(None, 1, DType::F64).unwrap();
    let mut opt = Sgd::new(&model, &SgdOptions { lr: 0.01, ..Default::default() }).unwrap();
    let tokens = rows(0, 2);
    let given: Vec<i64> = (0..32).map(|i| if i == 5 { -100 } else { i % 64 }).collect();
    let labels = Array::new(given, &[2, 16]).unwrap();
    let plain = Batch::new(&tokens, &labels);
    let chances = model.log_probs(&plain, &StepOptions::default()).unwrap();
    let loss = model.eval_step(&tokens, &labels).unwrap();
    assert!(chances.len() == 32 && chances[5] == 0.0 && loss.weight_sum == 31.0);
    assert!((loss.loss + chances.iter().sum::<f64>() / 31.0).abs() < 1e-12);

    let weights: Vec<f64> = (0..32).map(|i| i as f64 / 8.0).collect();
    let sum = weights.iter().sum::<f64>() - weights[5];
    let want = -weights.iter().zip(&chances).map(|(weight, chance)| weight * chance).sum::<f64>() / sum;
    let weights = Array::new(weights, &[2, 16]).unwrap();
    let weighted = plain.clone().token_weights(&weights);
    let found = model.eval_step_with(&weighted, &StepOptions::default()).unwrap();
    assert!((found.loss - want).abs() < 1e-12 && (found.weight_sum - sum).abs() < 1e-12);
    assert_eq!(model.log_probs(&weighted, &StepOptions::default()).unwrap_err().code, Code::InvalidArgument);
    let z = model.eval_step_with(&plain, &StepOptions { z_loss: 0.1, ..Default::default() }).unwrap();
    assert!(z.loss > loss.loss);

    assert_eq!(model.gradient_norms().unwrap_err().code, Code::InvalidState);
    let options = StepOptions { max_grad_norm: 1.0, gradient_norms: true, replay: true, ..Default::default() };
    let result = model.train_step_with(&mut opt, &plain, &options).unwrap();
    let norms = model.gradient_norms().unwrap();
    let whole = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
    assert_eq!(norms.len(), model.parameter_count().unwrap());
    assert!((whole - result.grad_norm).abs() < 1e-9 * whole);
}

#[test]
fn several_prompts_are_continued_at_once_up_to_a_stop_token() {
    let mut model = small();
    model.materialize(None, 1, DType::F64).unwrap();
    let options = GenerateOptions { token_count: 6, temperature: 0.0, ..Default::default() };
    let prompts: [&[i64]; 3] = [&[3, 1, 4, 1, 5], &[9], &[2, 6]];
    let together = model.generate_rows(&prompts, &[], &options).unwrap();
    for (prompt, row) in prompts.iter().zip(&together) {
        assert_eq!(&model.generate(prompt, &options).unwrap(), row);
    }
    let stop = together[0][1];
    let stopped = model.generate_rows(&prompts, &[stop], &options).unwrap();
    let end = together[0].iter().position(|&token| token == stop).unwrap();
    assert_eq!(stopped[0], together[0][..=end]);
    assert!(model.generate_rows(&[&[]], &[], &options).unwrap_err().text.contains("the prompt is empty"));
}
