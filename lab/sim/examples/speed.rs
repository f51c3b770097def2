//! How fast the simulator is: events per second for dedup on 16 vCPUs, and 1,024 vCPUs for 10 simulated
//! seconds, with peak memory. Run by `make bench-sim`; `make promises` judges the numbers.

#![allow(clippy::print_stdout, reason = "a measurement for developers: the end of its output may end it")]

use std::process::ExitCode;
use std::time::Instant;

use gleaner_sim::library::{self, Parameters};
use gleaner_sim::{Costs, HostSpec, Ns, Spec, VmSpec, World};

const SECOND: Ns = 1_000_000_000;

fn world(program: &str, vms: u32, vcpus: u32, time: Ns) -> Option<World> {
    let parameters = Parameters { threads: 0, work: 0, grain: 0 };
    let vms = (0..vms).map(|index| {
        let program = library::make(program, parameters, vcpus)?;
        Some(VmSpec::new(&format!("vm{index}"), vcpus, Costs::ATC14_VM).running(program))
    });
    let vms: Vec<VmSpec> = vms.collect::<Option<_>>()?;
    let cores = vcpus * u32::try_from(vms.len()).ok()? / 2;
    let mut spec = Spec::new(HostSpec { sockets: 2, cores, ..HostSpec::default() }, vms);
    spec.time_limit = time;
    World::new(&spec).ok()
}

/// Whether there was a world to measure.
fn measure(what: &str, world: Option<World>) -> bool {
    let Some(mut world) = world else {
        println!("{what}: cannot be built");
        return false;
    };
    let start = Instant::now();
    world.run();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{what}: {} events in {seconds:.2} s, {:.2} million events/s, peak memory {}",
        world.events(),
        world.events() as f64 / seconds / 1e6,
        peak_memory()
    );
    true
}

/// `VmHWM` of this process.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |l| l.trim().to_owned())
}

fn main() -> ExitCode {
    let measured = measure("dedup, 1 VM with 16 vCPUs, 20 s", world("dedup", 1, 16, 20 * SECOND))
        && measure("dedup, 2 VMs with 512 vCPUs each, 10 s", world("dedup", 2, 512, 10 * SECOND))
        && measure(
            "streamcluster, 64 VMs with 16 vCPUs each, 10 s",
            world("streamcluster", 64, 16, 10 * SECOND),
        );
    if measured { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
