mod common;
use common::meshes;
use gangway::*;
use std::path::PathBuf;

/// A file of `count` bytes below 50 in a folder of the test's own.
fn file(test: &str, count: usize) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gangway-rust-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("a.u8");
    std::fs::write(&path, (0..count).map(|i| (i * 7 % 50) as u8).collect::<Vec<_>>()).unwrap();
    path
}

fn options(sequence: i64) -> DatasetOptions {
    DatasetOptions { sequence, seed: 3, vocab_size: 50, ..Default::default() }
}

#[test]
fn a_batch_has_tokens_labels_and_its_place() {
    let path = file("batch", 401);
    let mut data = Dataset::new(&[Source::new(&path)], &options(8)).unwrap();
    assert_eq!(data.rows_per_epoch().unwrap(), 50);
    for k in 0..4 {
        let batch = data.next(None, 6).unwrap();
        assert_eq!(
            (batch.rows, batch.rank_rows, batch.label_count),
            ((6 * k, 6 * k + 6), (6 * k, 6 * k + 6), 48)
        );
        assert_eq!(batch.tokens.shape(), [6, 8]);
        assert!(batch.documents.is_none() && batch.data_seconds >= 0.0);
        let (tokens, labels) = (batch.tokens.slice::<i64>().unwrap(), batch.labels.slice::<i64>().unwrap());
        assert!(tokens.iter().zip(labels).all(|(token, label)| (token + 7) % 50 == *label));
    }
    assert_eq!((data.rows_taken().unwrap(), data.batches_taken().unwrap()), (24, 4));
    let place = data.position().unwrap();
    let mut other = Dataset::new(&[Source::new(&path)], &options(8)).unwrap();
    other.restore(&place, false).unwrap();
    let next = |data: &mut Dataset| data.next(None, 3).unwrap().tokens.slice::<i64>().unwrap().to_vec();
    assert_eq!(next(&mut other), next(&mut data));
    other.set_rows_taken(0).unwrap();
    assert_eq!((other.rows_taken().unwrap(), other.batches_taken().unwrap()), (0, 5));
}

#[test]
fn training_takes_the_same_rows_on_any_number_of_ranks() {
    let path = file("ranks", 2000);
    let losses = |ranks| {
        meshes(ranks, |gangs| {
            let llama = DecoderOptions { dim: 16, layers: 1, heads: 2, vocab: 50, ..Default::default() };
            let mut model = Decoder::new(&llama).unwrap();
            let parallel = ParallelOptions { master_dtype: DType::F64, seed: 1, ..Default::default() };
            model.parallelize(&gangs, &parallel).unwrap();
            let mut opt = AdamW::new(&model, &Default::default()).unwrap();
            let sources = [Source::new(&path).weight(2.0), Source::new(&path).format("u8")];
            let mut data = Dataset::new(&sources, &options(16)).unwrap();
            let mut losses = Vec::new();
            for _ in 0..3 {
                let batch = data.next(&gangs, 7).unwrap();
                losses.push(model.train_step_on(&mut opt, &batch, &Default::default()).unwrap().loss);
            }
            let batch = data.next(&gangs, 7).unwrap();
            losses.push(model.eval_step_on(&batch, &Default::default()).unwrap().loss);
            losses
        })
    };
    let alone = losses(1).remove(0);
    for found in losses(2).into_iter().chain(losses(3)) {
        assert!(found.iter().zip(&alone).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?} {alone:?}");
    }
}

#[test]
fn packed_documents_say_which_they_are() {
    let path = file("documents", 1);
    std::fs::write(&path, [1, 2, 0, 3, 0, 4, 5, 6, 7, 0]).unwrap();
    let packed =
        DatasetOptions { packing: Packing::Documents, document_end: 0, shuffle: false, ..options(6) };
    let mut data = Dataset::new(&[Source::new(&path)], &packed).unwrap();
    let batch = data.next(None, 2).unwrap();
    let documents = batch.documents.unwrap();
    assert_eq!(documents.slice::<i32>().unwrap(), [0, 0, 0, 1, 1, -1, 0, 0, 0, 0, 0, -1]);
    assert_eq!(batch.labels.slice::<i64>().unwrap()[..6], [2, 0, -100, 0, -100, -100]);

    let llama = DecoderOptions { dim: 16, layers: 1, heads: 2, vocab: 8, ..Default::default() };
    let mut model = Decoder::new(&llama).unwrap();
    model.materialize(None, 1, DType::F32).unwrap();
    let packed = model.eval_step_on(&batch, &Default::default()).unwrap().loss;
    let positions = Array::new(vec![5i64; 12], &[2, 6]).unwrap();
    let plain = Batch::new(&batch.tokens, &batch.labels);
    let mut loss = |batch: &Batch<'_>| model.eval_step_with(batch, &Default::default()).unwrap().loss;
    assert_eq!(loss(&plain.clone().documents(&documents)), packed);
    assert_ne!(loss(&plain), packed);
    assert_ne!(loss(&plain.clone().documents(&documents).positions(&positions)), packed);
}

#[test]
fn bad_input_is_refused_by_its_name() {
    let path = file("refused", 401);
    let refused =
        |sources: &[Source], options: &DatasetOptions| Dataset::new(sources, options).err().unwrap();
    assert_eq!(refused(&[], &options(8)).code, Code::InvalidArgument);
    assert!(refused(&[Source::new(&path).weight(0.0)], &options(8)).text.contains("weight is 0"));
    assert_eq!(refused(&[Source::new("/none.u8")], &options(8)).code, Code::Io);
    assert!(refused(&[Source::new(&path)], &options(0)).text.contains("sequence is 0"));
    let mut data = Dataset::new(&[Source::new(&path)], &options(8)).unwrap();
    assert!(data.next(None, 0).err().unwrap().text.contains("global_batch is 0"));
    let place = data.position().unwrap();
    let mut other = Dataset::new(&[Source::new(&path)], &options(16)).unwrap();
    assert_eq!(other.restore(&place, false).err().unwrap().code, Code::Mismatch);
    other.restore(&place, true).unwrap();
}
