//! Operating characteristics of the guard: how often, how soon and at what cost it decides correctly under the
//! noise of real runs. The policy drives one retention lever; its effect on progress is injected, the noise is
//! recorded (lab/bench/noise, made by lab/bench/noise/record).
//!
//! usage: bench-guard RUNS RECORDING...    (prints a table in Markdown)

mod open;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_policy::{
    CpuSet, Decision, Method, Observation, Policy, PolicyConfig, VcpuInterval, WorkloadInterval,
};

const SECOND: Duration = Duration::from_secs(1);
/// Idle periods per second of both vCPUs while the workload halts: enough to be worth trying something.
const IDLE_PERIODS: f64 = 20_000.0;
/// Hand-offs per second.
const SWITCHES: f64 = 40_000.0;

/// Bytes moved by a real program over time, replayed in a loop.
struct Recording {
    name: String,
    /// Seconds and bytes since the start.
    rows: Vec<(f64, f64)>,
}

impl Recording {
    fn read(path: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {path}: {e}"))?;
        let row = |line: &str| {
            let (us, amount) = line.split_once(' ')?;
            Some((us.parse::<f64>().ok()? / 1e6, amount.parse::<f64>().ok()?))
        };
        let rows: Option<Vec<_>> = text.lines().map(row).collect();
        let mut rows = rows.filter(|r| r.len() >= 100).ok_or(format!("{path}: no recording"))?;
        // Recordings hold running totals or the amount of each block: sum up the latter.
        if rows.windows(2).any(|w| w[1].1 < w[0].1) {
            let mut sum = 0.0;
            for row in &mut rows {
                sum += row.1;
                row.1 = sum;
            }
        }
        let (t0, a0) = rows[0];
        let rows: Vec<_> = rows.iter().map(|(t, a)| (t - t0, a - a0)).collect();
        let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".tsv").to_owned();
        Ok(Self { name, rows })
    }

    fn seconds(&self) -> f64 {
        self.rows[self.rows.len() - 1].0
    }

    /// Bytes up to `at` seconds, scaled so that every program moves 20 MB/s.
    fn moved(&self, at: f64) -> f64 {
        let (length, all) = self.rows[self.rows.len() - 1];
        let (times, at) = ((at / length).floor(), at % length);
        let i = self.rows.partition_point(|(t, _)| *t <= at).clamp(1, self.rows.len() - 1);
        let ((t0, a0), (t1, a1)) = (self.rows[i - 1], self.rows[i]);
        let here = a0 + (a1 - a0) * ((at - t0) / (t1 - t0)).clamp(0.0, 1.0);
        (times * all + here) / all * length * 20e6
    }

    /// The median difference between the logarithms of neighbouring blocks, as a standard deviation.
    fn spread(&self) -> f64 {
        let rates: Vec<_> =
            self.rows.windows(2).map(|w| ((w[1].1 - w[0].1).max(1.0) / (w[1].0 - w[0].0)).ln()).collect();
        let mut distances: Vec<_> = rates.windows(2).map(|w| (w[1] - w[0]).abs()).collect();
        distances.sort_by(f64::total_cmp);
        distances[distances.len() / 2] / 0.6745
    }
}

/// One run of the policy: retention multiplies progress by `effect(time)`.
struct Run<'a> {
    recording: &'a Recording,
    offset: f64,
    policy: Policy,
    decision: Decision,
    now: Duration,
    /// Progress made, and what the untouched system would have made.
    made: (f64, f64),
    /// Since when the incumbent has been retained; `None` while it is not.
    adopted: Option<Duration>,
}

impl<'a> Run<'a> {
    fn new(recording: &'a Recording, offset: f64) -> Result<Self, String> {
        let config = PolicyConfig { method: Method::Haltpoll, consolidate: false, ..PolicyConfig::default() };
        let policy = Policy::new(config, CpuSet::first(2)).map_err(|e| e.to_string())?;
        let decision =
            Decision { setting: policy.setting(), next: Duration::from_millis(10), ..Decision::default() };
        Ok(Self { recording, offset, policy, decision, now: Duration::ZERO, made: (0.0, 0.0), adopted: None })
    }

    /// Steps the policy until `end`, or until its incumbent is retained or not, as `until` asks.
    fn go(
        &mut self,
        end: Duration,
        effect: impl Fn(Duration) -> f64,
        until: Option<bool>,
    ) -> Option<Duration> {
        while self.now < end {
            let (from, period) = (self.now, self.decision.next);
            self.now += period;
            let at = |t: Duration| self.recording.moved(self.offset + t.as_secs_f64());
            let base = at(self.now) - at(from);
            let retained = self.decision.setting.retention.is_on();
            let moved = if retained { base * effect(from) } else { base };
            self.made.0 += moved;
            self.made.1 += base;
            let o = observation(self.now, period, retained, moved);
            self.decision = self.policy.step(&o);
            for event in &self.decision.events {
                use gleaner_policy::Event;
                match event {
                    Event::TrialEnded { kept, .. } => {
                        self.adopted = kept.retention.is_on().then(|| self.adopted.unwrap_or(self.now));
                    }
                    Event::Released { .. } => self.adopted = None,
                    Event::Resumed { setting, .. } if setting.retention.is_on() => {
                        self.adopted = Some(self.now);
                    }
                    _ => {}
                }
            }
            if until.is_some_and(|wanted| self.adopted.is_some() == wanted) {
                return Some(self.now);
            }
        }
        None
    }
}

fn observation(at: Duration, period: Duration, retained: bool, moved: f64) -> Observation {
    let seconds = period.as_secs_f64();
    let workload = WorkloadInterval {
        cpu_time: period,
        user_time: period.mul_f64(0.3),
        switches: count(SWITCHES * seconds),
        moved_bytes: Some(count(moved)),
        threads: 8,
        ..WorkloadInterval::default()
    };
    let idle = (count(IDLE_PERIODS / 2.0 * seconds), period.mul_f64(0.5));
    on_two_vcpus(at, period, retained, idle, workload)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "amounts are small and not negative"
)]
fn count(x: f64) -> u64 {
    x.round() as u64
}

/// `workload` in an observation of two vCPUs with the given idle time, polled if `retained`.
fn on_two_vcpus(
    at: Duration,
    period: Duration,
    retained: bool,
    (periods, time): (u64, Duration),
    workload: WorkloadInterval,
) -> Observation {
    let none = (0, Duration::ZERO);
    let ((halts, halt_time), (polls, poll_time)) =
        if retained { (none, (periods, time)) } else { ((periods, time), none) };
    let vcpu = |cpu| VcpuInterval {
        cpu: gleaner_policy::CpuId(cpu),
        halts,
        halt_time,
        polls,
        poll_time,
        steal: Duration::ZERO,
    };
    Observation {
        at,
        period,
        vcpus: vec![vcpu(0), vcpu(1)],
        workload,
        runnable: 1,
        overload: None,
        throttled: 0.0,
        settled: true,
        cost: Duration::from_micros(50),
    }
}

/// A question, and the share of runs that must answer it correctly.
struct Question {
    text: &'static str,
    promised: f64,
    holds: fn(&mut Run<'_>) -> bool,
}

const QUESTIONS: [Question; 9] = [
    Question { text: "neutral (0.98): not in force after 60 s", promised: 0.98, holds: |r| neutral(r, 0.98) },
    Question { text: "neutral (1.00): not in force after 60 s", promised: 0.98, holds: |r| neutral(r, 1.0) },
    Question { text: "neutral (1.02): not in force after 60 s", promised: 0.98, holds: |r| neutral(r, 1.02) },
    Question { text: "in force, turns 3 % harmful: undone within 10 s", promised: 0.95, holds: turned },
    Question { text: "+5 %: adopted within 10 s", promised: 0.8, holds: |r| adopted(r, 1.05, 10 * SECOND) },
    Question {
        text: "+20 %: adopted within 1.5 s",
        promised: 0.95,
        holds: |r| adopted(r, 1.2, SECOND * 3 / 2),
    },
    Question {
        text: "2x: adopted within 150 ms",
        promised: 0.95,
        holds: |r| adopted(r, 2.0, SECOND * 3 / 20),
    },
    Question { text: "-10 %: loss of 60 s at most 2 %", promised: 0.99, holds: |r| cheap(r, 0.9) },
    Question { text: "-50 %: loss of 60 s at most 2 %", promised: 0.99, holds: |r| cheap(r, 0.5) },
];

fn neutral(run: &mut Run<'_>, effect: f64) -> bool {
    run.go(60 * SECOND, |_| effect, None);
    run.adopted.is_none()
}

fn adopted(run: &mut Run<'_>, effect: f64, within: Duration) -> bool {
    run.go(within, |_| effect, Some(true)).is_some()
}

fn cheap(run: &mut Run<'_>, effect: f64) -> bool {
    run.go(60 * SECOND, |_| effect, None);
    run.made.0 >= 0.98 * run.made.1
}

fn turned(run: &mut Run<'_>) -> bool {
    let Some(_) = run.go(30 * SECOND, |_| 1.5, Some(true)) else { return false };
    // In the middle of an interval between proofs.
    run.go(run.now + 5 * SECOND, |_| 1.5, None);
    if run.adopted.is_none() {
        return true;
    }
    run.go(run.now + 10 * SECOND, |_| 0.97, Some(false)).is_some()
}

fn run(runs: u32, paths: &[String]) -> Result<String, String> {
    let recordings: Vec<_> = paths.iter().map(|p| Recording::read(p)).collect::<Result<_, _>>()?;
    let mut out = String::from("| recording | spread of 10-ms blocks |");
    for i in 1..=QUESTIONS.len() {
        let _ = write!(out, " {i} |");
    }
    let _ = writeln!(out, "\n|---|--:|{}", "--:|".repeat(QUESTIONS.len()));
    let mut held = [0_u32; QUESTIONS.len()];
    for recording in &recordings {
        let _ = write!(out, "| {} | {:.2} |", recording.name, recording.spread());
        for (question, all) in QUESTIONS.iter().zip(&mut held) {
            let mut yes = 0;
            for i in 0..runs {
                // The golden ratio spreads the offsets evenly over the recording.
                let offset = recording.seconds() * ((f64::from(i) + 0.5) * 0.618_033_988_749_895).fract();
                yes += u32::from((question.holds)(&mut Run::new(recording, offset)?));
            }
            *all += yes;
            let _ = write!(out, " {:.0} % |", f64::from(yes) / f64::from(runs) * 100.0);
        }
        out.push('\n');
    }
    let _ = writeln!(out, "\n| | question | promised | of all runs |\n|--:|---|--:|--:|");
    let all = f64::from(runs) * recordings.len() as f64;
    for (i, (question, held)) in QUESTIONS.iter().zip(held).enumerate() {
        let share = f64::from(held) / all;
        let verdict = if share >= question.promised { "" } else { " (missed)" };
        let _ = writeln!(
            out,
            "| {} | {} | {:.0} % | {:.1} %{verdict} |",
            i + 1,
            question.text,
            question.promised * 100.0,
            share * 100.0
        );
    }
    let _ = write!(out, "\n{}", open::table(runs)?);
    Ok(out)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runs = args.first().and_then(|n| n.parse().ok());
    let result = match (runs, &args[..]) {
        (Some(runs), [_, paths @ ..]) if !paths.is_empty() => run(runs, paths),
        _ => Err("usage: bench-guard RUNS RECORDING...".to_owned()),
    };
    match result.and_then(|text| std::io::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench-guard: {error}");
            ExitCode::FAILURE
        }
    }
}
