//! The numbers in the text of the HP3C'20 paper, and its figures: four 24-vCPU VMs on 48 hardware threads,
//! whose idle vCPUs halt (vanilla), poll for a while (`HaltPoll`) or poll indefinitely (`IdlePoll`).

use gleaner_policy::Method;

use super::lab::{BUSY_W, IDLE_W};
use super::{Bar, Basis, Chart, Figure, Group, Quantity, Reproduction};
use crate::cost::Costs;
use crate::ids::{FOREVER, Ns};
use crate::library::{self, Parameters};
use crate::parallel;
use crate::spec::{HostSpec, IdleMode, PauseLoops, Spec, VmSpec};
use crate::world::{Report, World};

/// vCPUs per VM (§3.2).
const VCPUS: u32 = 24;
/// VMs per host.
const VMS: usize = 4;
/// Simulated time of each run. Results are rates, so that programs of different lengths can share the host.
const TIME: Ns = 1_000_000_000;
/// Poll limit of `HaltPoll`. The paper does not state it; this is the kernel's `guest_halt_poll_ns`.
const HALT_POLL: Ns = 200_000;

/// What idle vCPUs do; `Native` is bare metal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Native,
    Vanilla,
    HaltPoll,
    IdlePoll,
}

impl Mode {
    const VIRTUAL: [Self; 3] = [Self::Vanilla, Self::HaltPoll, Self::IdlePoll];

    const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Vanilla => "vanilla",
            Self::HaltPoll => "HaltPoll",
            Self::IdlePoll => "IdlePoll",
        }
    }

    const fn idle(self) -> IdleMode {
        match self {
            Self::Native | Self::Vanilla => IdleMode::HALT,
            Self::HaltPoll => IdleMode { method: Method::Haltpoll, limit: HALT_POLL },
            Self::IdlePoll => IdleMode { method: Method::QosPoll, limit: FOREVER },
        }
    }
}

/// The programs of the four VMs.
type Mix = [&'static str; VMS];

/// Programs that synchronise a lot. They stand in for the paper's applications (Table 1), whose
/// synchronisation no source describes: two of the paper's own (§2.3) and three of the library.
const SYNCHRONISING: [&str; 5] = ["dedup", "volrend", "facesim", "cholesky", "request-response"];

/// Result of a run.
struct Outcome {
    /// Operations per second, by VM.
    rates: [f64; VMS],
    /// Halts per second and vCPU, by VM; each is a round trip to the hypervisor.
    halts: [f64; VMS],
    /// Energy of the whole machine per operation of the first VM, in joules.
    joules: f64,
}

fn run(mix: Mix, mode: Mode) -> Option<Outcome> {
    let program = |name: &str| {
        let pairs = name == "request-response";
        let threads = if pairs { VCPUS / 2 } else { VCPUS };
        library::make(name, Parameters { threads, work: 0, grain: 0 }, VCPUS)
    };
    // Linux 3.16 (§3.2).
    let pause_loops = PauseLoops::Preempted;
    let host =
        HostSpec { sockets: 2, cores: 12, smt: 2, numa_speed: 1.0, pause_loops, ..HostSpec::default() };
    let mut vms = Vec::new();
    if mode == Mode::Native {
        let all = host.pcpus();
        let mut system = VmSpec {
            pinned: true,
            ple: false,
            lazy_tlb: true,
            ..VmSpec::new("native", all, Costs::ATC14_NATIVE)
        };
        for name in mix {
            system = system.running(program(name)?);
        }
        vms.push(system);
    } else {
        for (index, name) in mix.into_iter().enumerate() {
            // Linux 3.16: no halt polling in the hypervisor, and shootdowns include idle vCPUs.
            let vm = VmSpec::new(&format!("vm{}", index + 1), VCPUS, Costs::ATC14_VM);
            vms.push(VmSpec { idle: mode.idle(), lazy_tlb: true, ..vm }.running(program(name)?));
        }
    }
    let mut spec = Spec::new(host, vms);
    spec.time_limit = TIME;
    let mut world = World::new(&spec).ok()?;
    world.run();
    Some(Outcome::of(&world.report()))
}

impl Outcome {
    fn of(report: &Report) -> Self {
        let seconds = report.elapsed as f64 / 1e9;
        let (mut rates, mut halts) = ([0.0; VMS], [0.0; VMS]);
        for (rate, task) in rates.iter_mut().zip(report.vms.iter().flat_map(|vm| &vm.tasks)) {
            *rate = task.totals.operations as f64 / seconds;
        }
        for (halts, vm) in halts.iter_mut().zip(&report.vms) {
            *halts = vm.halts_per_s(report.elapsed);
        }
        let joules = report.energy(BUSY_W, IDLE_W) / seconds / rates[0];
        Self { rates, halts, joules }
    }
}

/// Runs of one mix.
struct Compared {
    mix: Mix,
    native: Option<Outcome>,
    virtual_: [Option<Outcome>; 3],
}

impl Compared {
    fn mode(&self, mode: Mode) -> Option<&Outcome> {
        let index = Mode::VIRTUAL.iter().position(|m| *m == mode);
        index.map_or(self.native.as_ref(), |i| self.virtual_[i].as_ref())
    }

    /// Rate of VM `vm` under `mode` relative to `base`.
    fn ratio(&self, vm: usize, mode: Mode, base: Mode) -> Option<f64> {
        Some(self.mode(mode)?.rates[vm] / self.mode(base)?.rates[vm])
    }
}

fn compare(mixes: &[Mix]) -> Vec<Compared> {
    let modes = [Mode::Native, Mode::Vanilla, Mode::HaltPoll, Mode::IdlePoll];
    let runs: Vec<(Mix, Mode)> = mixes.iter().flat_map(|mix| modes.map(|mode| (*mix, mode))).collect();
    let mut outcomes = parallel::on_all_cores(&runs, |(mix, mode)| run(*mix, *mode)).into_iter();
    let mut next = || outcomes.next().flatten();
    mixes
        .iter()
        .map(|mix| Compared { mix: *mix, native: next(), virtual_: [next(), next(), next()] })
        .collect()
}

pub(super) fn reproduce(progress: &mut dyn FnMut(&str)) -> Reproduction {
    let mut out = Reproduction::default();
    let [vm, native] = [Costs::ATC14_VM, Costs::ATC14_NATIVE].map(|costs| costs.wake()[3] as f64);
    out.number(
        "§1",
        "context switch, VM / physical machine, at least",
        5.6,
        Some(vm / native),
        Basis::Fitted,
    );
    progress("§2.3: four VMs with the same program (Figure 2)");
    let same = compare(&[["dedup"; VMS], ["volrend"; VMS]]);
    figure_2(&same, &mut out);
    progress("§2.3: two that synchronise, two that compute (Figure 3)");
    let mixed = compare(&[["dedup", "volrend", "matmul", "matmul"]]);
    figure_3(&mixed[0], &mut out);
    progress("§4: pairs of programs (Table 2, Figures 4 and 5)");
    let pairs = compare(&SYNCHRONISING.map(|p| [p, "matmul", p, "matmul"]));
    pairs_of_programs(&pairs, &mut out);
    out.not_modelled = vec![
        "Tables 1 and 2, Figure 4: the 14 applications and their context switches are not stated in numbers; five programs of \
         the library stand for those that synchronise, matmul for those that compute",
        "§4.2: that MediaTomb, DBT1 and MongoDB suffer most: their mix of I/O and computation is not stated",
        "Figure 5: kernbench, Exim and Metis; the power model's watts are assumed, so that only the sign of the saving is compared",
        "Figure 1: a diagram",
        "The paper's costs: those of the ATC'14 paper's machine stand for them; HaltPoll's longest poll is assumed (200 us)",
    ];
    out
}

fn figure_2(same: &[Compared], out: &mut Reproduction) {
    for (compared, paper) in same.iter().zip([1.536, 1.808]) {
        let name = compared.mix[0];
        let mean = |mode, base| {
            let ratios: Option<Vec<f64>> = (0..VMS).map(|vm| compared.ratio(vm, mode, base)).collect();
            ratios.map(|r| r.iter().sum::<f64>() / r.len() as f64)
        };
        let found = mean(Mode::IdlePoll, Mode::Vanilla);
        let what = format!("four VMs with {name}: throughput IdlePoll / vanilla");
        out.number("§2.3, Figure 2", &what, paper, found, Basis::HeldOut);
        out.direction(format!("§2.3: IdlePoll makes four VMs with {name} faster"), found.map(|f| f > 1.0));
        out.direction(
            format!("§2.3: vanilla KVM is slower than no virtualisation, four times {name}"),
            mean(Mode::Vanilla, Mode::Native).map(|f| f < 1.0),
        );
    }
    out.figures.push(normalised("Figure 2", "The same program in four VMs", same, &[0]));
}

fn figure_3(mixed: &Compared, out: &mut Reproduction) {
    for (vm, name) in [(0, "dedup"), (1, "volrend")] {
        out.direction(
            format!("§2.3, Figure 3: IdlePoll makes {name} beside matmul faster"),
            mixed.ratio(vm, Mode::IdlePoll, Mode::Vanilla).map(|r| r > 1.0),
        );
    }
    out.direction(
        "§2.3, Figure 3: IdlePoll lowers matmul's throughput",
        mixed.ratio(2, Mode::IdlePoll, Mode::Vanilla).map(|r| r < 1.0),
    );
    out.figures.push(normalised(
        "Figure 3",
        "Two that synchronise, two that compute",
        std::slice::from_ref(mixed),
        &[0, 1, 2],
    ));
}

fn pairs_of_programs(pairs: &[Compared], out: &mut Reproduction) {
    switches_of_pairs(pairs, out);
    throughputs_of_pairs(pairs, out);
    energies_of_pairs(pairs, out);
    out.figures.extend([
        by_mode(
            "Table 2",
            "Switches to the hypervisor for idling",
            "halts per operation",
            Quantity::Plain,
            pairs,
            halts,
        ),
        normalised("Figure 4", "Programs that synchronise beside matmul", pairs, &[0, 1]),
        by_mode("Figure 5", "Energy for the same work", "of vanilla's", Quantity::Factor, pairs, energy),
    ]);
}

fn switches_of_pairs(pairs: &[Compared], out: &mut Reproduction) {
    for compared in pairs {
        let name = compared.mix[0];
        let [vanilla, halt_poll, idle_poll] = Mode::VIRTUAL.map(|mode| halts(compared, mode));
        out.direction(
            format!("§4.1, Table 2: IdlePoll incurs no context switches for idling, {name}"),
            idle_poll.map(|i| i == 0.0),
        );
        out.direction(
            format!("§4.1, Table 2: HaltPoll reduces them, {name}"),
            halt_poll.zip(vanilla).map(|(h, v)| h < v),
        );
    }
}

fn throughputs_of_pairs(pairs: &[Compared], out: &mut Reproduction) {
    let to_vanilla = |vm, mode| mean(pairs, |c| c.ratio(vm, mode, Mode::Vanilla));
    let [halt, idle] = [Mode::HaltPoll, Mode::IdlePoll].map(|mode| [0, 1].map(|vm| to_vanilla(vm, mode)));
    out.direction(
        "§4.2, §6: HaltPoll raises the throughput of programs that synchronise",
        halt[0].map(|h| h > 1.0),
    );
    out.direction(
        "§4.2, §6: IdlePoll raises the throughput of programs that synchronise",
        idle[0].map(|i| i > 1.0),
    );
    out.direction("§4.2: IdlePoll slows programs that compute beside them down", idle[1].map(|i| i < 1.0));
    out.direction(
        "§4.2: programs that compute have much more throughput with HaltPoll than with IdlePoll (5 %)",
        halt[1].zip(idle[1]).map(|(h, i)| h > 1.05 * i),
    );
    out.direction(
        "§4.2: HaltPoll still incurs context switches",
        mean(pairs, |c| halts(c, Mode::HaltPoll)).map(|h| h > 0.0),
    );
}

fn energies_of_pairs(pairs: &[Compared], out: &mut Reproduction) {
    let [halt, idle] = [Mode::HaltPoll, Mode::IdlePoll].map(|mode| mean(pairs, |c| energy(c, mode)));
    out.direction("§4.3: IdlePoll takes less energy for the same work", idle.map(|i| i < 1.0));
    out.direction("§4.3: HaltPoll takes less energy for the same work", halt.map(|h| h < 1.0));
    out.direction("§4.3: HaltPoll does not save more than IdlePoll", halt.zip(idle).map(|(h, i)| h >= i));
}

/// Halts of the first VM per unit of work, since a faster program halts more often in the same time.
fn halts(compared: &Compared, mode: Mode) -> Option<f64> {
    compared.mode(mode).map(|o| o.halts[0] * f64::from(VCPUS) / o.rates[0])
}

/// Energy per unit of work, relative to vanilla's.
fn energy(compared: &Compared, mode: Mode) -> Option<f64> {
    Some(compared.mode(mode)?.joules / compared.mode(Mode::Vanilla)?.joules)
}

/// The mean of a value over all pairs; `None` if one of them has none.
fn mean(pairs: &[Compared], of: impl Fn(&Compared) -> Option<f64>) -> Option<f64> {
    let all: Option<Vec<f64>> = pairs.iter().map(of).collect();
    all.map(|a| a.iter().sum::<f64>() / a.len() as f64)
}

/// A value of each pair under each mode.
fn by_mode(
    place: &'static str,
    title: &str,
    value: &'static str,
    quantity: Quantity,
    pairs: &[Compared],
    of: impl Fn(&Compared, Mode) -> Option<f64>,
) -> Figure {
    let bar = |c: &Compared, (series, mode): (usize, Mode)| Bar {
        label: mode.name().to_owned(),
        series,
        value: of(c, mode),
        range: None,
    };
    let group = |c: &Compared| Group {
        label: c.mix[0].to_owned(),
        bars: (1..).zip(Mode::VIRTUAL).map(|m| bar(c, m)).collect(),
    };
    let reference = if quantity == Quantity::Factor { 1.0 } else { 0.0 };
    let chart = Chart::Bars { reference, groups: pairs.iter().map(group).collect() };
    Figure { place, title: title.to_owned(), caption: String::new(), value, quantity, chart }
}

/// Throughputs relative to bare metal.
fn normalised(place: &'static str, title: &str, mixes: &[Compared], vms: &[usize]) -> Figure {
    let group = |c: &Compared, vm: usize| {
        let others: Vec<&str> = c.mix.iter().copied().filter(|p| *p != c.mix[vm]).collect();
        let beside = others.first().map_or_else(String::new, |o| format!(" (beside {o})"));
        let bar = |(series, mode): (usize, Mode)| {
            let value = c.ratio(vm, mode, Mode::Native);
            Bar { label: mode.name().to_owned(), series, value, range: None }
        };
        Group { label: format!("{}{beside}", c.mix[vm]), bars: (1..).zip(Mode::VIRTUAL).map(bar).collect() }
    };
    let groups = mixes.iter().flat_map(|c| vms.iter().map(move |vm| group(c, *vm))).collect();
    Figure {
        place,
        title: title.to_owned(),
        caption: "Throughput relative to the same four programs without virtualisation.".to_owned(),
        value: "times the native throughput",
        quantity: Quantity::Factor,
        chart: Chart::Bars { reference: 1.0, groups },
    }
}
