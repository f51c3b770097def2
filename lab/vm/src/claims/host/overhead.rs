//! What following the vCPUs costs the guests.

use std::time::Duration;

use super::{failed, follow, guest};
use crate::claims::measure::{Mode, Sample, ratios, sample};
use crate::claims::{Checks, Target};
use crate::error::Result;
use crate::kernel::Kernel;
use crate::vm::Lab;

const ROUNDS: usize = 8;
const TIME: Duration = Duration::from_secs(4);

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let guest = lab.boot(guest("overhead", Kernel::V7))?;
    for workload in ["wake", "tlb"] {
        let mut samples: [Vec<Sample>; 2] = Default::default();
        let mut rates = Vec::new();
        for round in 0..ROUNDS {
            for turn in 0..2 {
                let followed = (round + turn) % 2 == 1;
                let mut tracer = if followed { Some(follow()?.1) } else { None };
                samples[usize::from(followed)].push(sample(&guest, Mode::UNTOUCHED, &[workload], TIME)?);
                if let Some(tracer) = &mut tracer {
                    let read = tracer.read().map_err(|error| failed(&error))?;
                    let exits: u64 = read
                        .vcpus
                        .iter()
                        .flat_map(|vcpu| &vcpu.attribution.reasons)
                        .map(|sum| sum.count)
                        .sum();
                    rates.push(exits as f64 / TIME.as_secs_f64());
                }
            }
        }
        checks.values(format!("{workload}: exits"), &rates, "per second", Target::Reported);
        let work = ratios(&samples[1], &samples[0], |sample| sample.throughput);
        checks.ratios(
            format!("{workload}: work done while it is followed"),
            &work,
            "×",
            Target::AtLeast(0.97),
        );
    }
    guest.power_off()
}
