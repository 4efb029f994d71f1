mod common;
use common::ranks;
use gangway::{wait_all, Array, Code, Reduce};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

struct Nothing;
impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

/// The smallest executor.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Nothing));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}

struct Counted(Arc<AtomicUsize>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn every_work_gives_its_buffers_back() {
    ranks(2, |gang| {
        let (rank, one) = (gang.rank(), vec![gang.rank() as f32]);
        assert_eq!(gang.all_reduce(one.clone(), Reduce::Sum).start().unwrap().wait().unwrap(), [1.0]);
        let (input, output) = gang.all_gather(one.clone(), vec![0f32; 2]).start().unwrap().wait().unwrap();
        assert_eq!((input, output), (one.clone(), vec![0.0, 1.0]));
        let both = vec![1f32, 2.0];
        let work = gang.reduce_scatter(both.clone(), vec![0f32; 1], Reduce::Sum).start().unwrap();
        assert_eq!(work.wait().unwrap().1, [2.0 * (rank + 1) as f32]);
        assert_eq!(gang.broadcast(one.clone(), 1).start().unwrap().wait().unwrap(), [1.0]);
        let at_root = |len: usize| (rank == 0).then(|| vec![0f32; len]);
        let work = gang.reduce(one.clone(), at_root(1), Reduce::Max, 0).start().unwrap();
        assert_eq!(work.wait().unwrap().1, (rank == 0).then(|| vec![1.0]));
        let work = gang.gather(one, at_root(2), 0).start().unwrap();
        assert_eq!(work.wait().unwrap().1, (rank == 0).then(|| vec![0.0, 1.0]));
        let work = gang.scatter((rank == 0).then(|| both.clone()), vec![0f32], 0).start().unwrap();
        assert_eq!(work.wait().unwrap().1, [(rank + 1) as f32]);
        let work = gang.all_to_all(vec![rank as f32; 2], vec![0f32; 2]).start().unwrap();
        assert_eq!(work.wait().unwrap().1, [0.0, 1.0]);
        if rank == 0 {
            gang.send(Array::new(vec![9i32, 8], &[2, 1]).unwrap(), 1).start().unwrap().wait().unwrap();
        } else {
            assert_eq!(gang.recv(vec![0i32; 2], 0).start().unwrap().wait().unwrap(), [9, 8]);
        }
        gang.barrier().start().unwrap().wait().unwrap();
    });
}

#[test]
fn an_all_to_all_of_different_lengths_owns_its_buffers_until_it_is_done() {
    ranks(3, |gang| {
        let rank = gang.rank();
        // rank r sends r + 1 elements to every rank
        let (sent, got) = ([rank + 1; 3], [1, 2, 3]);
        let input = vec![rank as u32; 3 * (rank + 1)];
        let refused = gang
            .all_to_all(input.clone(), vec![0u32; 5])
            .counts(&sent)
            .recv_counts(&got)
            .start()
            .err()
            .unwrap();
        assert!(refused.text.contains("output has 5 elements, 6 are needed"), "{refused}");
        let refused =
            gang.all_to_all(input.clone(), vec![0u32; 6]).counts(&sent[..2]).recv_counts(&got).start().err();
        assert!(refused.unwrap().text.contains("counts has 2 elements, 3 are needed"));
        let works = (0..4).map(|_| {
            let mut memory = gang.alloc::<u32>(6).unwrap();
            memory.fill(9);
            let (sent, got) = (sent.to_vec(), got.to_vec()); // gone when the work runs
            gang.all_to_all(input.clone(), memory).counts(&sent).recv_counts(&got).start().unwrap()
        });
        for (back, output) in wait_all(works.collect()).unwrap() {
            assert_eq!((back, &output[..]), (input.clone(), &[0, 1, 1, 2, 2, 2][..]));
        }
        let dropped = gang.all_to_all(input, vec![0u32; 6]).counts(&sent).recv_counts(&got).start().unwrap();
        drop(dropped); // neither cancelled nor waited for
        gang.barrier().run().unwrap();
    });
}

#[test]
fn every_work_with_counts_owns_its_buffers_until_it_is_done() {
    ranks(3, |gang| {
        let (rank, counts) = (gang.rank(), [1, 2, 3]);
        let (own, parts) = (vec![rank as i32; rank + 1], vec![10, 20, 20, 30, 30, 30]);
        let zeros = || vec![0i32; rank + 1];
        let work = gang.all_gather(own.clone(), vec![0; 6]).counts(&counts).start().unwrap();
        assert_eq!(work.wait().unwrap(), (own.clone(), vec![0, 1, 1, 2, 2, 2]));
        let work = gang.reduce_scatter(parts.clone(), zeros(), Reduce::Sum).counts(&counts).start().unwrap();
        assert_eq!(work.wait().unwrap(), (parts.clone(), vec![30 * (rank as i32 + 1); rank + 1]));
        let at_root = || (rank == 1).then(|| vec![0; 6]);
        let work = gang.gather(own.clone(), at_root(), 1).counts(&counts).start().unwrap();
        assert_eq!(work.wait().unwrap(), (own.clone(), (rank == 1).then(|| vec![0, 1, 1, 2, 2, 2])));
        let work =
            gang.scatter((rank == 1).then(|| parts.clone()), zeros(), 1).counts(&counts).start().unwrap();
        assert_eq!(work.wait().unwrap().1, vec![10 * (rank as i32 + 1); rank + 1]);
        let error = gang.all_gather(own, vec![0; 5]).counts(&counts).start().err().unwrap();
        assert!(error.text.contains("all_gather: output has 5 elements, 6 are needed"), "{error}");
    });
}

#[test]
fn lists_sums_and_flags_have_async_forms() {
    ranks(3, |gang| {
        let rank = gang.rank();
        let work = gang.all_gather_list(vec![rank as u8; 2], vec![vec![9u8; 2]; 3]).start().unwrap();
        let (input, outputs) = work.wait().unwrap();
        assert_eq!((input, outputs), (vec![rank as u8; 2], vec![vec![0, 0], vec![1, 1], vec![2, 2]]));
        let refused = gang.all_gather_list(vec![1u8; 2], vec![vec![9u8; 2]; 2]).start().err().unwrap();
        assert!(refused.text.contains("outputs has 2 elements, 3 are needed"), "{refused}");
        let (sum, flag) = (gang.all_sum_async(rank as f64), gang.broadcast_flag_async(rank == 2, 2));
        drop(gang.all_sum_async(1.0).unwrap()); // its memory lives until it is done
        assert_eq!((sum.unwrap().wait().unwrap(), flag.unwrap().wait().unwrap()), (3.0, 1));
        gang.barrier().run().unwrap();
    });
}

#[test]
fn a_work_may_borrow_what_lives_as_long_as_the_program() {
    static ONES: [f32; 2] = [1.0; 2];
    ranks(2, |gang| {
        let sums: &'static mut [f32] = vec![0f32; 2].leak();
        let (_, sums) = gang.all_reduce_into(&ONES, sums, Reduce::Sum).start().unwrap().wait().unwrap();
        assert_eq!(sums, [2.0; 2]);
    });
}

#[test]
fn a_work_is_a_future() {
    ranks(3, |gang| {
        let mut memory = gang.alloc::<f64>(5).unwrap();
        memory.fill(1.0);
        let work = gang.all_reduce(memory, Reduce::Sum).start().unwrap();
        let memory = block_on(work).unwrap();
        assert_eq!(memory[..], [3.0; 5]);
    });
}

#[test]
fn many_works_are_waited_for_together() {
    ranks(2, |gang| {
        let works = (0..8).map(|i| gang.all_reduce(vec![i as i64], Reduce::Sum).start().unwrap());
        let sums = wait_all(works.collect()).unwrap();
        assert_eq!(sums.concat(), (0..8).map(|i| 2 * i).collect::<Vec<i64>>());
    });
}

#[test]
fn a_wait_that_runs_out_is_harmless() {
    ranks(2, |gang| {
        let side = gang.duplicate().unwrap();
        if gang.rank() == 0 {
            let mut work = gang.all_reduce(vec![1f32], Reduce::Sum).start().unwrap();
            assert!(!work.wait_for(Duration::from_millis(1)).unwrap()); // rank 1 comes after the barrier
            side.barrier().run().unwrap();
            assert_eq!(work.wait().unwrap(), [2.0]);
        } else {
            side.barrier().run().unwrap();
            let mut values = [1f32];
            gang.all_reduce(&mut values, Reduce::Sum).run().unwrap();
        }
    });
}

#[test]
fn what_is_attached_is_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = drops.clone();
    ranks(2, move |gang| {
        let work = gang.all_reduce(vec![1f32; 100], Reduce::Sum).start().unwrap();
        work.attach(Counted(counted.clone())).unwrap();
        work.wait().unwrap();
        let dropped_in_flight = gang.all_reduce(vec![1f32; 100], Reduce::Sum).start().unwrap();
        dropped_in_flight.attach(Counted(counted.clone())).unwrap();
        drop(dropped_in_flight);
        gang.barrier().run().unwrap();
        gang.shutdown(None).unwrap();
    });
    assert_eq!(drops.load(Ordering::SeqCst), 4);
}

#[test]
fn a_work_of_a_broken_gang_says_why() {
    ranks(2, |gang| {
        if gang.rank() == 0 {
            let work = gang.all_reduce(vec![1f32], Reduce::Sum).start().unwrap();
            gang.abort("no more").unwrap();
            let error = work.wait().unwrap_err();
            assert_eq!(error.code, Code::Aborted);
            assert!(error.text.contains("no more"), "{error}");
        } else {
            while gang.async_error().is_ok() {
                std::thread::yield_now(); // a call here could meet the work above
            }
            let error = gang.barrier().run().unwrap_err();
            assert_eq!(error.code, Code::Aborted);
        }
    });
}
