mod common;
use common::meshes;
use gangway::*;
use std::path::PathBuf;

fn small(gangs: &Gangs, seed: u64) -> (Module, Optimizer) {
    let options = DecoderOptions { dim: 8, layers: 1, heads: 2, ffn: 16, vocab: 22, ..Default::default() };
    let mut model = Decoder::new(&options).unwrap();
    model.parallelize(gangs, &ParallelOptions { seed, ..Default::default() }).unwrap();
    let opt = AdamW::new(&model, &AdamWOptions { lr: 1e-2, ..Default::default() }).unwrap();
    (model, opt)
}

fn losses(model: &mut Module, opt: &mut Optimizer, first: i64, last: i64) -> Vec<f64> {
    let step = |number: i64| {
        let tokens: Vec<i64> = (0..12).map(|i| (number * 5 + i * 3) % 22).collect();
        let tokens = Array::new(tokens, &[2, 6]).unwrap();
        model.train_step(opt, &tokens, ()).unwrap().loss
    };
    (first..last).map(step).collect()
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gangway-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn a_restored_run_has_the_losses_of_the_undisturbed_one() {
    let path = folder("run");
    let path = &path;
    meshes(2, move |gangs| {
        let options = CheckpointsOptions { every: 2, ..Default::default() };
        assert_eq!((options.keep, options.synchronous), (3, false));
        let (mut model, mut opt) = small(&gangs, 1);
        let mut run = Checkpoints::new(path, &gangs, &options).unwrap();
        let part = |model, optimizer| CheckpointPart { name: "", model, optimizer, carry_from: None };
        losses(&mut model, &mut opt, 0, 2);
        assert!(run.due(2).unwrap() && !run.due(3).unwrap());
        let state = CheckpointState { step: 2, tokens: 24, texts: &[("data", "row 4")], user: b"own\0bytes" };
        run.save(&[part(&model, Some(&opt))], &state).unwrap();
        let wanted = losses(&mut model, &mut opt, 2, 4);
        run.wait().unwrap();
        assert!(run.buffer_bytes().unwrap() > 0);
        drop(run);

        let (mut model, mut opt) = small(&gangs, 2);
        let mut run = Checkpoints::new(path, &gangs, &options).unwrap();
        let mut parts = [CheckpointPartMut { name: "", model: &mut model, optimizer: Some(&mut opt) }];
        let restored = run.restore(&mut parts, &RestoreOptions::default()).unwrap().unwrap();
        assert_eq!((restored.step, restored.tokens, restored.user), (2, 24, b"own\0bytes".to_vec()));
        assert_eq!(restored.notes, ["seed: 1 in the checkpoint, 2 now"]);
        assert_eq!(run.text("data").unwrap(), "row 4");
        assert_eq!(run.text("none").unwrap_err().code, Code::NotFound);
        assert_eq!(losses(&mut model, &mut opt, 2, 4), wanted);

        opt.load(path.join("step-00000002/optimizer.safetensors")).unwrap();
        opt.set_steps(9).unwrap();
        assert_eq!((opt.steps().unwrap(), opt.base_lr().unwrap(), opt.finite_steps().unwrap()), (9, 1e-2, 0));
        opt.restore_loss_scale(4.0, 0).unwrap();
        assert_eq!(opt.loss_scale().unwrap(), 4.0);
    });
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn an_empty_folder_has_nothing_and_refusals_name_what_is_wrong() {
    let path = folder("empty-run");
    let path = &path;
    meshes(2, move |gangs| {
        let (mut model, mut opt) = small(&gangs, 1);
        let wrong = CheckpointsOptions { keep: -1, ..Default::default() };
        let refused = Checkpoints::new(path, &gangs, &wrong).unwrap_err();
        assert!(refused.text.contains("keep = -1 is below 0"), "{refused}");
        let mut run = Checkpoints::new(path, &gangs, &CheckpointsOptions::default()).unwrap();
        assert_eq!(run.text("data").unwrap_err().code, Code::InvalidState);
        let mut parts = [CheckpointPartMut { name: "", model: &mut model, optimizer: Some(&mut opt) }];
        assert_eq!(run.restore(&mut parts, &RestoreOptions::default()).unwrap(), None);
        let seventh = RestoreOptions { step: 7, ..Default::default() };
        assert_eq!(run.restore(&mut parts, &seventh).unwrap_err().code, Code::NotFound);
        let bad = CheckpointPart { name: "a/b", model: &model, optimizer: None, carry_from: None };
        let refused = run.save(&[bad], &CheckpointState::default()).unwrap_err();
        assert!(refused.text.contains("a part's name is \"a/b\""), "{refused}");
    });
    std::fs::remove_dir_all(path).unwrap();
}
