//! The figures that are simulated.

use gleaner_policy::host::{DirectedYield, UrgentConfig};

use super::super::{Bar, Chart, Figure, Group, Quantity, SEED};
use super::{
    BALANCE, BASELINE, Host, LC_BALANCE, Neighbours, URGENT, VCPUS, gain_by_resched_co, run, seconds,
};
use crate::library::SUITES;
use crate::parallel;
use crate::program::BarrierKind;
use crate::world::{Category, Report};

const POLICIES: [(&str, Host); 4] =
    [("baseline", BASELINE), ("balance", BALANCE), ("LC balance", LC_BALANCE), ("urgent vCPU first", URGENT)];

type Part = (&'static str, fn(&Report) -> f64);

fn parsec() -> Vec<&'static str> {
    SUITES.iter().filter(|p| p.suite == "parsec").map(|p| p.name).collect()
}

/// Runs of the programs beside each of `neighbours`.
fn runs(
    programs: &[&'static str],
    hosts: &[Host],
    neighbours: &[Neighbours],
) -> Vec<(&'static str, Vec<Option<Report>>)> {
    let cases = || hosts.iter().flat_map(|h| neighbours.iter().map(move |n| (*h, *n)));
    let jobs: Vec<(&str, Host, Neighbours)> =
        programs.iter().flat_map(|p| cases().map(move |(h, n)| (*p, h, n))).collect();
    let mut reports = parallel::on_all_cores(&jobs, |(p, h, n)| run(p, *h, *n, SEED)).into_iter();
    let each = hosts.len() * neighbours.len();
    programs.iter().map(|p| (*p, reports.by_ref().take(each).collect())).collect()
}

/// The parallel VM's time in `categories`, as a share of its time on pCPUs.
fn share(report: &Report, categories: &[Category]) -> f64 {
    let vm = &report.vms[0];
    let off = [Category::Halted, Category::HostPoll, Category::Steal, Category::Waking];
    let all: u64 = vm.vcpus.iter().map(|v| v.time.iter().sum::<u64>()).sum();
    let off: u64 = off.iter().map(|c| vm.time(*c)).sum();
    categories.iter().map(|c| vm.time(*c)).sum::<u64>() as f64 / (all - off).max(1) as f64
}

fn per_vcpu_second(report: &Report, of: fn(&crate::VcpuCounts) -> u64) -> f64 {
    report.vms[0].count(of) as f64 / (report.elapsed as f64 / 1e9 * f64::from(VCPUS))
}

pub(in super::super) fn figures(progress: &mut dyn FnMut(&str)) -> Vec<Figure> {
    progress("Figures 1 to 3 and 7 to 11");
    let programs = parsec();
    let solo = runs(&programs, &[BASELINE], &[Neighbours::None, Neighbours::Parallel("streamcluster")]);
    let interrupts: [Part; 2] = [
        ("reschedule", |r| per_vcpu_second(r, |c| c.resched_ipis)),
        ("TLB shootdown", |r| per_vcpu_second(r, |c| c.flush_ipis)),
    ];
    let waits: [Part; 2] = [
        ("wait queues", |r| share(r, &[Category::LockSpin])),
        ("TLB shootdowns", |r| share(r, &[Category::TlbSpin])),
    ];
    let synchronising = ["streamcluster", "facesim", "bodytrack", "dedup", "vips", "ferret"];
    let hosts = POLICIES.map(|(_, host)| host);
    let sequential = runs(&synchronising, &hosts, &[Neighbours::Sequential]);
    let parallel = runs(&synchronising, &hosts, &[Neighbours::Parallel("dedup")]);
    vec![
        parts(
            &solo,
            0,
            "Figure 1",
            "Interrupts between vCPUs, alone",
            "per second and vCPU",
            Quantity::Plain,
            &interrupts,
        ),
        kernel_time(&solo),
        parts(
            &solo,
            1,
            "Figure 3",
            "Spinning in the kernel beside streamcluster",
            "share of the CPU time",
            Quantity::Share,
            &waits,
        ),
        preemption_delays(),
        policies(&sequential, "Figure 8", "Beside four sequential VMs"),
        policies(&parallel, "Figure 9", "Beside a parallel VM with dedup"),
        barriers(),
        with_pause_loop_exits(),
    ]
}

/// A value with its label.
type Labelled = (String, Option<f64>);

/// One group of bars per program, with these labelled values.
fn groups(values: Vec<(&str, Vec<Labelled>)>) -> Vec<Group> {
    let bar = |(series, (label, value)): (usize, Labelled)| Bar { label, series, value, range: None };
    let group = |(label, bars): (&str, Vec<Labelled>)| Group {
        label: label.to_owned(),
        bars: (1..).zip(bars).map(bar).collect(),
    };
    values.into_iter().map(group).collect()
}

fn preemption_delays() -> Figure {
    const DELAYS_US: [u64; 5] = [0, 100, 300, 500, 1000];
    let programs = ["bodytrack", "facesim", "streamcluster"];
    let hosts = DELAYS_US.map(|us| Host {
        urgent: UrgentConfig { resched_dp_ns: us * 1_000, tlb_co: false, ..UrgentConfig::PAPER },
        ..LC_BALANCE
    });
    let runs = runs(&programs, &hosts, &[Neighbours::Parallel("dedup")]);
    let preempted = |r: &Report| r.vms[0].count(|c| c.lock_holder_preempted) as f64;
    let values = runs.iter().map(|(program, reports)| {
        let bars = DELAYS_US.iter().zip(reports);
        (*program, bars.map(|(us, r)| (format!("{us} us"), r.as_ref().map(preempted))).collect())
    });
    let (title, value) = ("Delayed preemption, beside dedup", "preempted lock holders");
    figure("Figure 7a", title, value, Quantity::Plain, 0.0, groups(values.collect()))
}

fn barriers() -> Figure {
    let kinds =
        [("spins for 0.1 ms first", BarrierKind::Condition(100_000)), ("blocks", BarrierKind::Condition(0))];
    let gains = parallel::on_all_cores(&kinds, |(_, kind)| gain_by_resched_co(*kind).map(|g| g / 100.0));
    let bars = kinds.iter().zip(gains).map(|((label, _), gain)| ((*label).to_owned(), gain)).collect();
    let (title, value) = ("Resched-Co, streamcluster beside bodytrack", "less run time");
    figure("Figure 10a", title, value, Quantity::Share, 0.0, groups(vec![("", bars)]))
}

fn with_pause_loop_exits() -> Figure {
    let programs = ["streamcluster", "facesim", "ferret", "vips"];
    let hosts = [BASELINE, URGENT].map(|host| Host { yielding: DirectedYield::RoundRobin, ..host });
    let runs = runs(&programs, &hosts, &[Neighbours::Sequential]);
    let spins = [Category::LockSpin, Category::TlbSpin];
    let values = runs.iter().map(|(program, reports)| {
        let [baseline, urgent] = [0, 1].map(|i| reports[i].as_ref());
        let ratio = |of: &dyn Fn(&Report) -> Option<f64>| Some(of(urgent?)? / of(baseline?)?);
        let spun = |r: &Report| Some(spins.iter().map(|c| r.vms[0].time(*c)).sum::<u64>() as f64);
        let bars = vec![
            ("run time".to_owned(), ratio(&seconds)),
            ("spinning in the kernel".to_owned(), ratio(&spun)),
        ];
        (*program, bars)
    });
    let title = "Urgent vCPUs first where pause-loop exits yield, beside four sequential VMs";
    figure("Figure 11", title, "relative to the baseline", Quantity::Factor, 1.0, groups(values.collect()))
}

fn parts(
    runs: &[(&str, Vec<Option<Report>>)],
    index: usize,
    place: &'static str,
    title: &str,
    value: &'static str,
    quantity: Quantity,
    parts: &[Part],
) -> Figure {
    let group = |(program, reports): &(&str, Vec<Option<Report>>)| Group {
        label: (*program).to_owned(),
        bars: (1..)
            .zip(parts)
            .map(|(series, (label, of))| Bar {
                label: (*label).to_owned(),
                series,
                value: reports[index].as_ref().map(of),
                range: None,
            })
            .collect(),
    };
    figure(place, title, value, quantity, 0.0, runs.iter().map(group).collect())
}

fn kernel_time(runs: &[(&str, Vec<Option<Report>>)]) -> Figure {
    let kernel = |r: &Report| {
        share(r, &[Category::Kernel, Category::LockSpin, Category::TlbSpin, Category::Irq, Category::Switch])
    };
    let group = |(program, reports): &(&str, Vec<Option<Report>>)| Group {
        label: (*program).to_owned(),
        bars: (1..)
            .zip(["alone", "beside streamcluster"].iter().zip(reports))
            .map(|(series, (label, report))| Bar {
                label: (*label).to_owned(),
                series,
                value: report.as_ref().map(kernel),
                range: None,
            })
            .collect(),
    };
    let groups = runs.iter().map(group).collect();
    figure("Figure 2", "Time in the guest's kernel", "share of the CPU time", Quantity::Share, 0.0, groups)
}

fn policies(runs: &[(&str, Vec<Option<Report>>)], place: &'static str, title: &str) -> Figure {
    let group = |(program, reports): &(&str, Vec<Option<Report>>)| {
        let times: Vec<Option<f64>> = reports.iter().map(|r| seconds(r.as_ref()?)).collect();
        let bar = |(series, ((label, _), time)): (usize, (&(&str, Host), &Option<f64>))| Bar {
            label: (*label).to_owned(),
            series,
            value: time.zip(times[0]).map(|(time, baseline)| time / baseline),
            range: None,
        };
        let bars = (1..).zip(POLICIES.iter().zip(&times).skip(1)).map(bar).collect();
        Group { label: (*program).to_owned(), bars }
    };
    let groups = runs.iter().map(group).collect();
    figure(place, title, "run time / that with the baseline", Quantity::Factor, 1.0, groups)
}

fn figure(
    place: &'static str,
    title: &str,
    value: &'static str,
    quantity: Quantity,
    reference: f64,
    groups: Vec<Group>,
) -> Figure {
    Figure {
        place,
        title: title.to_owned(),
        caption: "The programs' shapes are assumed beyond what the text states.".to_owned(),
        value,
        quantity,
        chart: Chart::Bars { reference, groups },
    }
}
