//! Ranks as processes: gangrun starts this program again, and a test that finds itself a rank is the program.
mod common;
use common::ranks;
use gangway::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Barrier;

fn is_rank() -> bool {
    std::env::var_os("RANK").is_some()
}

/// Runs one test of this program as every rank of a gang.
fn as_ranks(test: &str, count: usize) {
    let gangrun = std::env::var_os("GANGRUN").unwrap_or_else(|| "gangrun".into());
    let mut command = Command::new(&gangrun);
    command.args(["-n", &count.to_string(), "--timeout", "600", "--"]).arg(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).output();
    let output = output.unwrap_or_else(|error| panic!("{gangrun:?}: {error} (set GANGRUN)"));
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test}: {}\n{text}{errors}", output.status);
}

#[test]
fn a_rank_that_leaves_without_shutdown_is_lost_and_named() {
    if !is_rank() {
        return as_ranks("a_rank_that_leaves_without_shutdown_is_lost_and_named", 2);
    }
    let gang = Gang::new(&Default::default()).unwrap();
    gang.barrier().run().unwrap(); // every rank has made it
    if gang.rank() == 0 {
        let error = gang.barrier().run().unwrap_err();
        assert_eq!((error.code, error.peer, error.rank), (Code::PeerLost, Some(1), Some(0)), "{error}");
        assert!(error.text.contains("without shutdown"), "{error}");
    }
}

#[test]
fn a_rank_that_leaves_in_a_pass_of_a_pipeline_is_lost_and_named() {
    if !is_rank() {
        return as_ranks("a_rank_that_leaves_in_a_pass_of_a_pipeline_is_lost_and_named", 2);
    }
    let gang = Gang::new(&Default::default()).unwrap();
    let mut pipe = Pipeline::new(&gang, &PipelineOptions { microbatches: 4, ..Default::default() }).unwrap();
    let y = [1f32; 3];
    for _ in 0..2 - gang.rank() {
        let action = pipe.next().unwrap().unwrap();
        if gang.rank() == 1 {
            std::process::exit(0); // with the first input at hand
        }
        action.done(&View::new(&y, &[3]).unwrap()).unwrap();
    }
    let error = loop {
        match pipe.next() {
            Ok(action) => action.unwrap().done(&View::new(&y, &[3]).unwrap()).unwrap(),
            Err(error) => break error,
        }
    };
    assert_eq!((error.code, error.peer), (Code::PeerLost, Some(1)), "{error}");
}

#[test]
fn ranks_meet_by_an_all_gather_of_the_program_s_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let other = std::thread::spawn(move || {
        let gang = meet(1, move || TcpStream::connect(address).unwrap()).unwrap();
        assert_eq!(gang.all_sum(1.0).unwrap(), 2.0);
        gang.shutdown(None).unwrap();
    });
    let gang = meet(0, move || listener.accept().unwrap().0).unwrap();
    assert_eq!(gang.all_sum(1.0).unwrap(), 2.0);
    gang.shutdown(None).unwrap();
    other.join().unwrap();
    let options = GangOptions { rank: 0, size: 2, timeout_ms: 60_000, ..Default::default() };
    let error = Gang::by_all_gather(&options, |_, _| Err(Error::caller("the pipe is broken"))).unwrap_err();
    assert_eq!((error.code, error.text.as_str()), (Code::Caller, "the pipe is broken"));
}

fn meet(rank: usize, connect: impl FnOnce() -> TcpStream + 'static) -> Result<Gang> {
    let options = GangOptions { rank: rank as i32, size: 2, timeout_ms: 120_000, ..Default::default() };
    Gang::by_all_gather(&options, move |mine, all| {
        let (mut stream, size) = (connect(), mine.len());
        all[rank * size..][..size].copy_from_slice(mine);
        stream
            .write_all(mine)
            .and_then(|_| stream.read_exact(&mut all[(1 - rank) * size..][..size]))
            .unwrap();
        Ok(())
    })
}

#[test]
fn ranks_meet_by_an_id() {
    let id = Gang::create_id().unwrap();
    assert!(id != Gang::create_id().unwrap());
    let rank = |rank: i32, id: Vec<u8>| {
        let gang = Gang::new(&GangOptions { rank, size: 2, id, timeout_ms: 120_000, ..Default::default() });
        let gang = gang.unwrap();
        assert_eq!((gang.rank(), gang.all_sum(rank as f64 + 1.0).unwrap()), (rank as usize, 3.0));
        gang.shutdown(None).unwrap();
    };
    if let Some(id) = std::env::var_os("GANGWAY_TEST_ID") {
        let bytes = id.to_str().unwrap().split(',').map(|byte| byte.parse().unwrap());
        return rank(1, bytes.collect());
    }
    let text: Vec<_> = id.iter().map(u8::to_string).collect();
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "ranks_meet_by_an_id"]).env("GANGWAY_TEST_ID", text.join(","));
    let mut other = other.spawn().unwrap();
    rank(0, id);
    assert!(other.wait().unwrap().success());
}

#[test]
fn a_deadline_that_passes_is_a_timeout_with_rank_and_call() {
    let late = Barrier::new(2);
    let options = GangOptions { timeout_ms: 300, threads: 1, ..Default::default() };
    let gangs = Gang::threads(2, &options).unwrap();
    std::thread::scope(|scope| {
        for gang in gangs {
            scope.spawn(|| {
                let gang = gang; // lives until its peer has given up
                let result = if gang.rank() == 0 { gang.recv(&mut [0f32; 3], 1).run() } else { Ok(()) };
                late.wait();
                if gang.rank() == 0 {
                    let error = result.unwrap_err();
                    assert_eq!((error.code, error.rank), (Code::Timeout, Some(0)), "{error}");
                    assert!(error.op.contains("recv"), "{:?}", error.op);
                }
            });
        }
    });
}

#[test]
fn a_forked_child_gets_its_own_status() {
    extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }
    let gang = Gang::new(&GangOptions { rank: 0, size: 1, ..Default::default() }).unwrap();
    let child = unsafe { fork() };
    if child == 0 {
        let code = gang.barrier().run().map_or_else(|error| error.code, |_| Code::Internal);
        unsafe { _exit(if code == Code::Forked { 7 } else { 1 }) };
    }
    let mut status = 0;
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 7 << 8);
    gang.barrier().run().unwrap();
}

#[test]
fn out_of_memory_and_corrupt_files_have_statuses_of_their_own() {
    ranks(1, |gang| {
        let error = gang.alloc::<f32>(1 << 54).err().unwrap();
        assert_eq!(error.code, Code::OutOfMemory, "{error}");
    });
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("spoilt.safetensors");
    std::fs::write(&file, "no tensors at all here").unwrap();
    let mut model = Linear::new(2, 2, false).unwrap();
    model.materialize(None, 0, DType::F32).unwrap();
    assert_eq!(model.load(&file).unwrap_err().code, Code::Corrupt);
}
