//! One rank of a gang that may hold ranks in other languages: the same calls as rank.c, the same file of results.
use gangway::*;
use std::fs::File;
use std::io::{BufWriter, Write};

const COUNT: usize = 1000;
const FEATURES: usize = 37;
const SEQUENCE: usize = 16;
const ROWS: usize = 2;
const VOCAB: usize = 64;
const STEPS: usize = 3;

const KINDS: [(&str, Reduce); 5] = [
    ("sum", Reduce::Sum),
    ("min", Reduce::Min),
    ("max", Reduce::Max),
    ("mean", Reduce::Mean),
    ("product", Reduce::Product),
];

struct Rank {
    gangs: Gangs,
    gang: Gang,
    me: usize,
    out: BufWriter<File>,
}

/// What a rank brings: whole numbers of either sign.
fn whole(i: usize, rank: usize, salt: usize) -> i64 {
    ((i + 1) * 7919 + rank * 104729 + salt * 1299709) as i64 % 20011 - 10005
}

impl Rank {
    fn put(&mut self, name: &str, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.out, "{name} {hex}").expect("the results are written");
    }

    fn put_all<T: Element>(&mut self, name: &str, values: &[T]) {
        // Elements have no padding.
        let bytes = std::mem::size_of_val(values);
        self.put(name, unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), bytes) });
    }

    fn fill<T>(&self, count: usize, salt: usize, from: impl Fn(i64) -> T) -> Vec<T> {
        (0..count).map(|i| from(whole(i, self.me, salt))).collect()
    }

    fn floats(&self, count: usize, salt: usize) -> Vec<f32> {
        self.fill(count, salt, |n| n as f32 / 1000.0)
    }

    fn reduce_all<T: Element>(&mut self, word: &str, salt: usize, from: impl Fn(i64) -> T) -> Result<()> {
        for (name, op) in &KINDS[..if salt < 2 { 5 } else { 3 }] {
            let mut x = self.fill(COUNT, salt, &from);
            let later = self.gang.all_reduce(x.clone(), *op).start()?;
            self.gang.all_reduce(&mut x, *op).run()?;
            self.put_all(&format!("all_reduce {word} {name}"), &x);
            self.put_all(&format!("all_reduce {word} {name} later"), &later.wait()?);
        }
        Ok(())
    }

    fn moves(&mut self) -> Result<()> {
        let (x, zeros) = (self.floats(4 * COUNT, 10), vec![0f32; 4 * COUNT]);
        let (gang, part) = (self.gang.clone(), x[..COUNT].to_vec());
        let mut y = zeros.clone();
        gang.all_gather(&part, &mut y).run()?;
        self.put_all("all_gather", &y);
        self.put_all("all_gather later", &gang.all_gather(part.clone(), zeros.clone()).start()?.wait()?.1);
        gang.all_gather_list(&part, y.chunks_mut(COUNT)).run()?;
        self.put_all("all_gather_list", &y);
        let places = vec![vec![0f32; COUNT]; 4];
        let later = gang.all_gather_list(part, places).start()?.wait()?.1.concat();
        self.put_all("all_gather_list later", &later);
        for (name, op) in KINDS {
            gang.reduce_scatter(&x, &mut y[..COUNT], op).run()?;
            self.put_all(&format!("reduce_scatter {name}"), &y[..COUNT]);
            let later = gang.reduce_scatter(x.clone(), zeros[..COUNT].to_vec(), op).start()?.wait()?.1;
            self.put_all(&format!("reduce_scatter {name} later"), &later);
        }
        gang.all_to_all(&x, &mut y).run()?;
        self.put_all("all_to_all", &y);
        self.put_all("all_to_all later", &gang.all_to_all(x.clone(), zeros).start()?.wait()?.1);
        self.parts_of_counts()
    }

    /// Rank r brings or gets r + 1 elements; in all_to_all it sends so many to every rank.
    fn parts_of_counts(&mut self) -> Result<()> {
        let (x, gang, mine, counts) = (self.floats(16, 90), self.gang.clone(), self.me + 1, [1, 2, 3, 4]);
        let (ten, my, here) = (vec![0f32; 10], vec![0f32; mine], self.me == 2);
        let (sent, part, room) = (x[..4 * mine].to_vec(), x[..mine].to_vec(), here.then(|| ten.clone()));
        let mut y = ten.clone();
        gang.all_to_all(&sent, &mut y).counts(&[mine; 4]).recv_counts(&counts).run()?;
        self.put_all("all_to_all counts", &y);
        let later = gang.all_to_all(sent, ten.clone()).counts(&[mine; 4]).recv_counts(&counts).start()?;
        self.put_all("all_to_all counts later", &later.wait()?.1);
        gang.all_gather(&part, &mut y).counts(&counts).run()?;
        self.put_all("all_gather counts", &y);
        let later = gang.all_gather(part.clone(), ten.clone()).counts(&counts).start()?;
        self.put_all("all_gather counts later", &later.wait()?.1);
        let mut y = my.clone();
        gang.reduce_scatter(&x[..10], &mut y, Reduce::Sum).counts(&counts).run()?;
        self.put_all("reduce_scatter counts", &y);
        let later = gang.reduce_scatter(x[..10].to_vec(), my.clone(), Reduce::Sum).counts(&counts).start()?;
        self.put_all("reduce_scatter counts later", &later.wait()?.1);
        let mut y = room.clone();
        gang.gather(&part, y.as_deref_mut(), 2).counts(&counts).run()?;
        self.put_all("gather counts", &y.unwrap_or_default());
        let later = gang.gather(part, room, 2).counts(&counts).start()?.wait()?.1;
        self.put_all("gather counts later", &later.unwrap_or_default());
        let mut y = my.clone();
        gang.scatter(here.then_some(&x[..10]), &mut y, 2).counts(&counts).run()?;
        self.put_all("scatter counts", &y);
        let later = gang.scatter(here.then(|| x[..10].to_vec()), my, 2).counts(&counts).start()?;
        self.put_all("scatter counts later", &later.wait()?.1);
        Ok(())
    }

    fn accumulate(&mut self) -> Result<()> {
        let (x, mut y, gang) = (self.floats(COUNT, 0), self.floats(COUNT, 80), self.gang.clone());
        let later = gang.all_reduce_into(x.clone(), y.clone(), Reduce::Sum).accumulate().start()?.wait()?.1;
        gang.all_reduce_into(&x, &mut y, Reduce::Sum).accumulate().run()?;
        self.put_all("accumulate", &y);
        self.put_all("accumulate later", &later);
        Ok(())
    }

    fn rooted(&mut self, root: usize) -> Result<()> {
        let (x, gang, here) = (self.floats(4 * COUNT, 20 + root), self.gang.clone(), self.me == root);
        let part = x[..COUNT].to_vec();
        let room = |count: usize| here.then(|| vec![0f32; count]);
        let mut y = part.clone();
        gang.broadcast(&mut y, root).run()?;
        self.put_all(&format!("broadcast from {root}"), &y);
        let later = gang.broadcast(part.clone(), root).start()?.wait()?;
        self.put_all(&format!("broadcast from {root} later"), &later);
        for (name, op) in KINDS {
            let mut y = room(COUNT);
            gang.reduce(&part, y.as_deref_mut(), op, root).run()?;
            self.put_all(&format!("reduce {name} to {root}"), &y.unwrap_or_default());
            let later = gang.reduce(part.clone(), room(COUNT), op, root).start()?.wait()?.1;
            self.put_all(&format!("reduce {name} to {root} later"), &later.unwrap_or_default());
        }
        let mut y = room(4 * COUNT);
        gang.gather(&part, y.as_deref_mut(), root).run()?;
        self.put_all(&format!("gather to {root}"), &y.unwrap_or_default());
        let later = gang.gather(part, room(4 * COUNT), root).start()?.wait()?.1;
        self.put_all(&format!("gather to {root} later"), &later.unwrap_or_default());
        let mut y = vec![0f32; COUNT];
        gang.scatter(here.then_some(&x[..]), &mut y, root).run()?;
        self.put_all(&format!("scatter from {root}"), &y);
        let later = gang.scatter(here.then_some(x), vec![0f32; COUNT], root).start()?.wait()?.1;
        self.put_all(&format!("scatter from {root} later"), &later);
        Ok(())
    }

    fn exchanges(&mut self) -> Result<()> {
        let (gang, me) = (self.gang.clone(), self.me);
        let (x, mut y) = (self.floats(COUNT, 30), vec![0f32; COUNT]);
        let (next, before, other) = ((me + 1) % 4, (me + 3) % 4, me ^ 1);
        gang.exchange().send(&x, next).recv(&mut y, before).run()?;
        self.put_all("batch", &y);
        if me < other {
            gang.send(&x, other).run()?;
        }
        gang.recv(&mut y, other).run()?;
        self.put_all("recv", &y);
        if me > other {
            gang.send(&x, other).run()?;
        }
        let (got, sent) = (gang.recv(y, next).start()?, gang.send(x, before).start()?);
        self.put_all("recv later", &got.wait()?);
        sent.wait().map(drop)
    }

    fn small_things(&mut self) -> Result<()> {
        let (gang, me) = (self.gang.clone(), self.me);
        gang.barrier().run()?;
        gang.barrier().start()?.wait()?;
        for root in 0..4 {
            self.put("flag", &[gang.broadcast_flag(me == 2, root)? as u8]);
            self.put("flag later", &[gang.broadcast_flag_async(me == 2, root)?.wait()? as u8]);
        }
        let number = whole(0, me, 40) as f64 / 1000.0;
        self.put_all("all_sum", &[gang.all_sum(number)?]);
        self.put_all("all_sum later", &[gang.all_sum_async(number)?.wait()?]);
        for root in 0..4 {
            self.put("broadcast_bytes", &gang.broadcast_bytes(format!("rank {me} ").as_bytes(), root)?);
        }
        self.put("all_gather_bytes", &gang.all_gather_bytes(&b"rank 0 rank 1 "[..me])?.concat());
        let gangs = [
            ("split", gang.split(Some(me as u32 % 2), -(me as i32))?),
            ("create_gang", gang.create_gang(&[3, 0, 2])?),
            ("duplicate", Some(gang.duplicate()?)),
        ];
        for (name, made) in gangs {
            let mut x = self.floats(COUNT, 50);
            made.map_or(Ok(()), |gang| gang.all_reduce(&mut x, Reduce::Sum).run())?;
            self.put_all(name, &x);
        }
        Ok(())
    }

    fn put_parameters(&mut self, model: &Module) -> Result<()> {
        for parameter in model.parameters()? {
            let whole = parameter.gather()?;
            self.put_all("parameter", whole.as_view().slice::<f32>()?);
        }
        Ok(())
    }

    fn train(&mut self) -> Result<()> {
        let llama = DecoderOptions { dim: 32, layers: 2, heads: 4, vocab: VOCAB as i64, ..Default::default() };
        let mut model = Decoder::new(&llama)?;
        model.parallelize(&self.gangs, &ParallelOptions { seed: 9, ..Default::default() })?;
        let mut opt = AdamW::new(&model, &AdamWOptions { lr: 0.01, ..Default::default() })?;
        let options = StepOptions { max_grad_norm: 1.0, ..Default::default() };
        for step in 0..STEPS {
            let row = |i| self.me * ROWS + i / SEQUENCE;
            let token = |i| ((i % SEQUENCE * 7 + row(i) * 5 + step * 3) % VOCAB) as i64;
            let tokens = Array::new((0..ROWS * SEQUENCE).map(token).collect(), &[ROWS, SEQUENCE])?;
            let result = model.train_step_with(&mut opt, &Batch::new(&tokens, ()), &options)?;
            self.put_all("loss", &[result.loss]);
            self.put_all("grad_norm", &[result.grad_norm]);
        }
        self.put_parameters(&model)
    }

    fn own_compute(&mut self) -> Result<()> {
        let parameters = vec![ParameterOptions::new("w", &[FEATURES])];
        let group = ShardGroup::new(Some(&self.gangs), "own", parameters, &ShardOptions::default(), 5)?;
        let mut model = Module::from_groups(vec![group])?;
        let mut opt = AdamW::new(&model, &AdamWOptions { lr: 0.01, ..Default::default() })?;
        let options = StepOptions { scale: 0.25, max_grad_norm: 1.0, ..Default::default() };
        for step in 0..STEPS {
            let (x, y) = (self.floats(FEATURES, 60 + step), self.floats(FEATURES, 70 + step));
            let mut group = model.group(0)?;
            group.unsharded(|full| {
                let w = full.value(0)?;
                let w = w.slice::<f32>()?;
                let gradient: Vec<f32> = (0..FEATURES).map(|i| w[i] * x[i] - y[i]).collect();
                full.add_gradient(0, &View::new(&gradient, &[FEATURES])?)
            })?;
            group.reduce()?;
            let result = opt.step(&mut model, &options)?;
            self.put_all("grad_norm", &[result.grad_norm]);
        }
        self.put_parameters(&model)
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let gangs = init(&Mesh::default())?;
    let gang = gangs.root().clone();
    let (me, folder) = (gang.rank(), std::env::args().nth(1).ok_or("usage: gangrun -n 4 rank FOLDER")?);
    let out = BufWriter::new(File::create(format!("{folder}/{me}"))?);
    let mut rank = Rank { gangs, gang, me, out };
    rank.reduce_all("f32", 0, |n| n as f32 / 1000.0)?;
    rank.reduce_all("f64", 1, |n| n as f64 / 1000.0)?;
    rank.reduce_all("i32", 2, |n| n as i32)?;
    rank.reduce_all("i64", 3, |n| n)?;
    rank.accumulate()?;
    rank.moves()?;
    (0..4).try_for_each(|root| rank.rooted(root))?;
    rank.exchanges()?;
    rank.small_things()?;
    rank.train()?;
    rank.own_compute()?;
    rank.out.flush()?;
    rank.gangs.shutdown(None)?;
    Ok(())
}
