//! A diagnosis like those of `gleaner diagnose`.

use gleaner_report::diagnosis::{
    Cause, Diagnosis, DurationSummary, Lane, Lengths, Spent, Thread, Timeline, Vcpu, Wake,
};
use gleaner_report::plot::Bin;

use super::noise;

/// Durations around `median_s`, in bins of a quarter of a power of two.
fn lengths(label: &str, per_second: f64, median_s: f64) -> Lengths {
    if per_second == 0.0 {
        return Lengths { label: label.to_owned(), per_second, typical: None, bins: Vec::new() };
    }
    let bin = |step: i32| {
        let at = |step: i32| median_s * 2f64.powf(f64::from(step) / 4.0);
        let height =
            (-f64::from(step * step) / 18.0).exp() * (1.0 + 0.3 * noise(step.unsigned_abs() as usize));
        Bin { from: at(step), to: at(step + 1), count: (per_second * height).round() }
    };
    Lengths {
        label: label.to_owned(),
        per_second,
        typical: Some(DurationSummary { median_s, mean_s: median_s * 1.2, p99_s: median_s * 4.0 }),
        bins: (-8..14).map(bin).filter(|bin| bin.count > 0.0).collect(),
    }
}

fn cause(name: &str, lost_s: f64, per_second: f64, unit: &str) -> Cause {
    Cause {
        name: name.to_owned(),
        category: "high host overhead, TPDS'21 section 6.2.1".to_owned(),
        lost_s,
        per_second,
        unit: unit.to_owned(),
        estimate: "each took 17.2µs in the median, 2.1µs where nothing is in the way".to_owned(),
        behind: vec!["sysbench wakes mariadbd: 9800 a second, 17.9µs each".to_owned()],
        advice: vec![
            "run it under `gleaner run`: retention keeps idle vCPUs from halting while that pays".to_owned(),
            "hand off fewer, larger pieces of work: pipelining, batching, fewer threads in the chain"
                .to_owned(),
        ],
    }
}

fn wake(from: &str, to: &str, per_second: f64, mean_s: f64, halted: f64) -> Wake {
    let polling = if halted < 0.3 { 0.65 } else { 0.0 };
    Wake { waker: from.to_owned(), wakee: to.to_owned(), per_second, mean_s, halted, polling }
}

/// A chain, a pool that wakes itself, and more names than get boxes of their own.
fn edges() -> Vec<Wake> {
    let mut edges = vec![
        wake("sysbench", "mariadbd", 9_800.0, 17.9e-6, 0.96),
        wake("mariadbd", "sysbench", 9_790.0, 16.8e-6, 0.93),
        wake("mariadbd", "mariadbd", 412.0, 31e-6, 0.5),
        wake("(interrupt)", "iouring_pool", 120.0, 9e-6, 0.1),
        wake("mariadbd", "ib_io_wr", 96.0, 21e-6, 0.8),
    ];
    let workers = (0..24_u32).map(|n| {
        let rate = 60.0 - 2.0 * f64::from(n);
        let from = ["mariadbd", "ib_io_wr", "iouring_pool"][n as usize % 3];
        wake(from, &format!("worker-{n}"), rate, 12e-6, f64::from(n % 2))
    });
    edges.extend(workers);
    edges.push(wake("worker-3", "sysbench", 20.0, 14e-6, 1.0));
    edges
}

fn lane(vcpu: u32) -> Lane {
    let bucket = |index: usize| {
        let workload = 0.45 + 0.1 * noise(index + 100 * vcpu as usize);
        let polling = if index > 20 { 0.2 } else { 0.0 };
        let others = 0.05;
        Spent {
            workload,
            others,
            polling,
            halted: 1.0 - workload - others - polling,
            steal: if index % 17 == 3 { 0.2 } else { 0.0 },
        }
    };
    Lane { vcpu, buckets: (0..60).map(bucket).collect() }
}

/// A database and its client on two vCPUs for three seconds.
pub(crate) fn diagnosis() -> Diagnosis {
    let thread = |name: &str, cpu: f64, woken: f64| Thread {
        name: name.to_owned(),
        cpu,
        spinning: 0.0,
        woken_per_second: woken,
        woken_s: (woken > 0.0).then_some(17e-6),
        computes_s: Some(31e-6),
    };
    let mut threads = vec![thread("mariadbd", 0.61, 10_212.0), thread("sysbench", 0.34, 9_790.0)];
    threads.extend((0..24).map(|n| thread(&format!("worker-{n}"), 0.01, 30.0)));
    Diagnosis {
        target: "sysbench oltp_point_select --mysql-socket=/tmp/m.sock --tables=4 --table-size=10000 --threads=1 run"
            .to_owned(),
        seconds: 3.0,
        matters: true,
        causes: vec![
            cause("blocking synchronisation: HLT", 0.296, 18_400.0, "wake-ups of halted vCPUs"),
            cause("blocking synchronisation: IPI", 0.081, 19_100.0, "interrupts sent"),
            cause("blocking synchronisation: tick", 0.064, 32_000.0, "timer programmings"),
            cause("steal", 0.012, 0.0, ""),
        ],
        wakes: vec![
            lengths("same vCPU", 410.0, 2.1e-6),
            lengths("other vCPU, awake", 1_300.0, 9e-6),
            lengths("other vCPU, polling", 0.0, 0.0),
            lengths("other vCPU, halted", 18_400.0, 17.2e-6),
        ],
        waits: vec![lengths("futex", 420.0, 1e-3), lengths("socket, pipe or file", 19_500.0, 48e-6)],
        edges: edges(),
        threads,
        vcpus: [0, 1]
            .map(|number| Vcpu {
                number,
                delays: lengths("run-queue delay", 900.0, 4e-6),
                halts: lengths("halted", 9_300.0, 44e-6),
                polls: lengths("polled", 0.0, 0.0),
            })
            .into(),
        timeline: Timeline {
            edges_s: (0..=60).map(|index| 0.05 * f64::from(index)).collect(),
            lanes: vec![lane(0), lane(1)],
        },
        timeline_note: "Sums of the kernel's events, read every 50 ms.".to_owned(),
        notes: vec!["Tracing cost 1.4 % of the CPU time in use.".to_owned()],
    }
}
