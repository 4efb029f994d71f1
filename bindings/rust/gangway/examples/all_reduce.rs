//! All-reduce over the ranks of a gang.
//!   gangrun -n 4 all_reduce
use gangway::{Gang, Reduce};

fn main() -> gangway::Result<()> {
    let gang = Gang::new(&Default::default())?; // the environment decides; nothing set: one rank
    let mut x = gang.alloc::<f32>(1000)?; // peers reach this memory directly; any slice works too
    x.fill(gang.rank() as f32 + 1.0);

    gang.all_reduce(&mut x, Reduce::Sum).run()?;
    println!("rank {} of {}: sum {}", gang.rank(), gang.size(), x[0]);

    let work = gang.all_reduce(x, Reduce::Max).start()?; // the same, while this rank does something else
    let x = work.wait()?; // the buffer comes back
    assert_eq!(x[0], (gang.size() * (gang.size() + 1) / 2) as f32);
    gang.shutdown(None)
}
