//! A program of its own: it counts the memory of the whole process.
use gangway::*;

/// Resident bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

struct Nowhere;
impl KeyValue for Nowhere {
    fn put(&self, _: &str, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn get(&self, _: &str) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn remove(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

fn round(gang: &Gang, i: usize) {
    let gangs = Gangs::fake("cpu").unwrap();
    let custom = Custom::new("one").shapes(|_| Ok(())).forward(|_| Ok(())).backward_input(|_| Ok(()));
    let mut model = Sequential::new(vec![Linear::new(4, 4, true).unwrap(), custom.build().unwrap()]).unwrap();
    assert!(model.parameter("9.weight").is_err()); // errors too
    assert!(gang.all_gather(&[1f32], &mut [0f32; 9]).is_err());
    model.materialize(Some(&gangs), i as u64, DType::F32).unwrap();
    let opt = AdamW::new(&model, &Default::default()).unwrap();
    let frame = Frame::new(&model, &Default::default()).unwrap();
    let store = Store::custom(Nowhere).unwrap();
    let weight = model.parameter("0.weight").unwrap().gather().unwrap();
    let work = gang.all_reduce_async(vec![1f32; 64], Reduce::Sum).unwrap();
    work.attach(vec![0u8; 64]).unwrap();
    match i % 3 {
        0 => drop(work.wait().unwrap()),
        1 => drop((gang.clone(), work)),
        _ => drop(gang.alloc::<f64>(8).unwrap()),
    }
    let group = ShardGroup::new(None, "g", vec![ParameterOptions::new("w", &[3])], &Default::default(), 1);
    drop((Module::from_groups(vec![group.unwrap()]).unwrap(), weight, opt, frame, store.clone(), store));
}

#[test]
fn ten_thousand_rounds_of_making_and_dropping_keep_the_memory() {
    let gang = Gang::new(&GangOptions { rank: 0, size: 1, ..Default::default() }).unwrap();
    for i in 0..2000 {
        round(&gang, i);
    }
    let before = resident();
    for i in 0..10_000 {
        round(&gang, i);
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 10_000 * 64, "{grown} bytes for 10000 rounds"); // less than any one handle a round
    println!("{grown} bytes for 10000 rounds");
}
