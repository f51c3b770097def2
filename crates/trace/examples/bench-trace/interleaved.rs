//! Compares a rate with and without a sensor, in alternating blocks.

use std::error::Error;
use std::time::Instant;

use gleaner_bench::stats::{estimate, median};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::{CgroupSetup, WorkloadGroup};
use gleaner_trace::Scope;

use crate::Outcome;
use crate::throughput::Load;

/// Measures `rate` with the sensor (`true`) and without, in the order B C C B, so that drift affects both alike.
/// Prints the ratio.
pub(crate) fn compare(
    what: &str,
    pairs: usize,
    rate: &mut dyn FnMut(bool) -> Result<f64, Box<dyn Error>>,
) -> Outcome {
    let (mut ratios, mut plain) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let mut rates = [0.0; 2];
        for with in if pair % 2 == 0 { [false, true] } else { [true, false] } {
            rates[usize::from(with)] = rate(with)?;
        }
        plain.push(rates[0]);
        ratios.push(rates[1] / rates[0]);
    }
    let ratio = estimate(&ratios).ok_or("nothing was measured")?;
    println!(
        "  {what}: {:.4} of the rate without ({:.4} to {:.4}, {pairs} pairs; {:.0} a second)",
        ratio.median,
        ratio.low,
        ratio.high,
        median(&plain).unwrap_or_default()
    );
    Ok(())
}

/// Elapsed time, in seconds.
pub(crate) fn timed(what: impl FnOnce()) -> f64 {
    let start = Instant::now();
    what();
    start.elapsed().as_secs_f64()
}

pub(crate) fn scope(load: &Load) -> Result<Scope, Box<dyn Error>> {
    let root = Root::system();
    let group = WorkloadGroup::new(&root, &CgroupSetup::detect(&root)?, load.id())?;
    Ok(Scope::Cgroup(group.cpuset_dir().to_owned()))
}
