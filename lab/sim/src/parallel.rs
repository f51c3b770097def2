//! Runs independent simulations on all cores. Results are in the order of the jobs.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Number of simulations to run in parallel.
pub fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Applies `run` to each job in `workers` threads. `done` is called after each job, from any of them.
pub fn map<T: Sync, R: Send>(
    jobs: &[T],
    workers: NonZeroUsize,
    run: impl Fn(&T) -> R + Sync,
    done: impl Fn() + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let worker = || {
        // Jobs differ in length, so each idle worker takes the next one.
        while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < jobs.len()) {
            let result = run(&jobs[index]);
            results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
            done();
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..workers.get().min(jobs.len().max(1)) {
            scope.spawn(worker);
        }
        worker();
    });
    // A panic of a worker has propagated out of the scope, so every job has a result here.
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

/// [`map`] with one worker per core and without a progress callback.
pub fn on_all_cores<T: Sync, R: Send>(jobs: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map(jobs, cores(), run, || ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs_whatever_the_number_of_workers() {
        let jobs: Vec<u64> = (0..100).collect();
        // The first jobs take longest.
        let run =
            |job: &u64| (0..(100 - job) * 1000).fold(*job, |sum, i| std::hint::black_box(sum ^ i) & 0xff);
        let done = AtomicUsize::new(0);
        let count = || {
            done.fetch_add(1, Ordering::Relaxed);
        };
        let one = map(&jobs, NonZeroUsize::MIN, run, count);
        let many = map(&jobs, NonZeroUsize::new(7).unwrap(), run, count);
        assert_eq!(one, many);
        assert_eq!((one.len(), done.into_inner()), (100, 200));
        assert!(map(&[] as &[u64], NonZeroUsize::MIN, run, || ()).is_empty());
    }
}
