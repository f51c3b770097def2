//! What virtualisation costs a program, with the hypervisor's part of it: `δη_r` of TPDS'21 §3.1, split as in Figure 4b, for a
//! program that wakes up threads all the time and one that never waits, undercommitted (UC) and overcommitted (OC).
//!
//! As in §4.3 the native side has the pCPUs alone in either case, and OC is a second VM that runs the same on the same pCPUs.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

use gleaner_bench::compare::host::JoinError;
use gleaner_bench::compare::overhead::Share;
use gleaner_bench::compare::{CompareError, Compared, compare_nested};
use gleaner_host::{Report, VmRecord};
use gleaner_print::say;
use gleaner_proto::result::{BenchResult, Metric, Sample};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::guest;
use crate::claims::{Checks, Target};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::vm::{Guest, Lab, Step};

/// Names as in the papers, and the built-in workloads.
const WORKLOADS: [(&str, &str); 2] = [("ping-pong", "wake"), ("matmul", "matmul")];
/// All that a native or a virtual run may use.
const PCPUS: [usize; 2] = [0, 1];
const ROUNDS: u64 = 6;
const WINDOW_S: u64 = 2;
/// The record starts before the run, and ends after it: on shared pCPUs the harness takes its time, too.
const RECORD_S: u64 = ROUNDS * WINDOW_S + 5;
/// How often a run is repeated because its record had another length.
const REPEATS: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(120);
const RESULT: &str = "/tmp/vm.json";

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let native = WORKLOADS.iter().map(|(_, workload)| native(workload)).collect::<Result<Vec<_>>>()?;
    // Of the host's own kernel, so that it is not part of the ratios.
    let first = lab.boot(guest("first", Kernel::V7).pinned_to(&PCPUS))?;
    let mut uc = Vec::new();
    for ((name, workload), native) in WORKLOADS.iter().zip(&native) {
        let run = Run::of(&first, workload, native)?;
        uc.push(run.cell(checks, &format!("{name}, UC"), native));
    }
    let second = lab.boot(guest("second", Kernel::V7).pinned_to(&PCPUS))?;
    let mut oc = Vec::new();
    for ((name, workload), native) in WORKLOADS.iter().zip(&native) {
        let words = ["gleaner", "workload", "--for", "600s", "--threads", "2", workload];
        let beside = second.start(Step::new(&words).timeout(Duration::from_secs(700)))?;
        let run = Run::of(&first, workload, native)?;
        beside.signal(Signal::SIGKILL)?;
        beside.wait()?;
        let name = format!("{name}, OC");
        // Before and after the run the other one is alone.
        let (ours, theirs) = (run.used_s("first"), run.used_s("second") - run.alone_s());
        checks.that(
            format!("{name}: the other VM has as much of the pCPUs, within a quarter"),
            theirs >= 0.75 * ours && ours >= 0.75 * theirs,
            format!("{theirs:.2} s, and this one {ours:.2} s"),
        );
        oc.push(run.cell(checks, &name, native));
    }
    judge(checks, &uc, &oc);
    second.power_off()?;
    first.power_off()
}

fn judge(checks: &mut Checks, uc: &[Option<Parts>], oc: &[Option<Parts>]) {
    for (scenario, cells) in [("UC", uc), ("OC", oc)] {
        let [Some(ping_pong), Some(matmul)] = cells else { continue };
        checks.that(
            format!("{scenario}: the hypervisor has a part in δη_r of ping-pong, a larger one than in that of matmul"),
            ping_pong.hypervisor > 0.0 && ping_pong.hypervisor > matmul.hypervisor,
            format!("{:+.1} % and {:+.1} %", 100.0 * ping_pong.hypervisor, 100.0 * matmul.hypervisor),
        );
    }
    if let [Some(ping_pong), Some(matmul)] = uc {
        checks.that(
            "UC: δη_r of ping-pong is larger than that of matmul",
            ping_pong.total.value > matmul.total.value,
            format!("{:+.1} % and {:+.1} %", 100.0 * ping_pong.total.value, 100.0 * matmul.total.value),
        );
    }
}

/// `δη_r` and its parts, as shares.
struct Parts {
    guest: f64,
    hypervisor: f64,
    total: Share,
}

/// A run in the VM `first`, and the host's record of it.
struct Run {
    result: BenchResult,
    record: Report,
}

impl Run {
    /// If the record is too long or too short, once more with one that fits.
    fn of(guest: &Guest, workload: &str, native: &BenchResult) -> Result<Self> {
        let mut run = Self::once(guest, workload, RECORD_S)?;
        for _ in 0..REPEATS {
            let refused = run.compared(native);
            let Err(CompareError::Host(JoinError::OtherSpan { run_s, span_s })) = refused else { break };
            say!("lab: {workload}: the run took {run_s:.1} s, and its record {span_s:.1} s: once more");
            run = Self::once(guest, workload, Duration::from_secs_f64(1.1 * run_s).as_secs() + 1)?;
        }
        Ok(run)
    }

    fn once(guest: &Guest, workload: &str, seconds: u64) -> Result<Self> {
        let recorder = Recorder::start(seconds)?;
        let words = bench(workload, RESULT);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        guest.succeed(Step::new(&words).timeout(TIMEOUT))?;
        let record = recorder.end()?;
        Ok(Self { result: saved(&guest.read(RESULT)?)?, record })
    }

    fn compared(&self, native: &BenchResult) -> std::result::Result<Compared, CompareError> {
        compare_nested(native, &self.result, &self.record, Some("first"))
    }

    /// Time of a VM's vCPUs on pCPUs, in s.
    fn used_s(&self, name: &str) -> f64 {
        let used = |vm: &VmRecord| (vm.times.guest_ns + vm.times.hypervisor_ns) as f64 / 1e9;
        self.record.vms.iter().filter(|vm| vm.name == name).map(used).sum()
    }

    /// Time of the pCPUs before and after the run in the record, in s.
    fn alone_s(&self) -> f64 {
        let samples = self.result.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| &cell.samples);
        let end = |sample: &Sample| Some(sample.start_s + sample.metrics.get(&Metric::WallS)?);
        let run_s = samples.filter_map(end).fold(0.0, f64::max);
        PCPUS.len() as f64 * (self.record.elapsed_s() - run_s).max(0.0)
    }

    /// As `gleaner bench compare --host --nested` gives it. `None`, and a check that fails, if the record is refused.
    fn cell(&self, checks: &mut Checks, name: &str, native: &BenchResult) -> Option<Parts> {
        let what = format!("{name}: the host's record is that of the run, and its parts add up to δη_r");
        let compared = match self.compared(native) {
            Ok(compared) => compared,
            Err(error) => {
                checks.that(what, false, error.to_string());
                return None;
            }
        };
        let Some((row, cycles)) =
            compared.overheads.first().and_then(|row| Some((row, row.cycles.as_ref()?)))
        else {
            checks.that(what, false, "no parts");
            return None;
        };
        let parts = Parts {
            guest: cycles.guest.delta_eta_r,
            hypervisor: cycles.hypervisor.delta_eta_r,
            total: row.overhead.delta_eta_r,
        };
        let Share { value, low, high } = parts.total;
        let time = row.overhead.delta_eta_t;
        let reasons = cycles.reasons.iter().take(3);
        let reasons: Vec<String> =
            reasons.map(|part| format!("{} {:+.1} %", part.reason, 100.0 * part.part.delta_eta_r)).collect();
        checks.that(
            what,
            (parts.guest + parts.hypervisor - value).abs() < 0.001,
            format!(
                "δη_r {:+.1} % [{:+.1}, {:+.1}], most of the hypervisor's: {}; δη_t {:+.1} %; samples cover {:.0} % of the run",
                100.0 * value,
                100.0 * low,
                100.0 * high,
                reasons.join(", "),
                100.0 * time.value,
                100.0 * compared.host.as_ref().map_or(0.0, |host| host.covered),
            ),
        );
        for (part, share) in [("guest", parts.guest), ("hypervisor", parts.hypervisor), ("total", value)] {
            checks.values(format!("{name}: δη_r, {part}"), &[100.0 * share], "%", Target::Reported);
        }
        Some(parts)
    }
}

/// Measures a workload, and writes the result into this file.
fn bench(workload: &str, file: &str) -> Vec<String> {
    let (rounds, window) = (ROUNDS.to_string(), WINDOW_S.to_string());
    let words = ["gleaner-bench", "run", "--quiet", "--workload", workload, "--set", "threads=2", "--mode"];
    let more = ["default", "--rounds", &rounds, "--window", &window, "--output", file];
    words.iter().chain(&more).map(|&word| word.to_owned()).collect()
}

/// On this host itself, on the pCPUs that the VMs get.
fn native(workload: &str) -> Result<BenchResult> {
    let dir = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let file = dir.path().join("native.json");
    let words = bench(workload, &file.to_string_lossy());
    // The program inherits the affinity of the thread that starts it, which ends with that.
    let run = || {
        let mut pcpus = CpuSet::new();
        let pinned = PCPUS.iter().try_for_each(|&pcpu| pcpus.set(pcpu));
        pinned
            .and_then(|()| sched_setaffinity(Pid::from_raw(0), &pcpus))
            .map_err(Error::system("pin to pCPUs"))?;
        let (program, args) = words.split_first().map_or(("", &words[..]), |(first, rest)| (first, rest));
        Command::new(program).args(args).output().map_err(Error::system("run gleaner-bench"))
    };
    let output = thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err(failed("the thread that runs gleaner-bench panicked".to_owned())))?;
    if !output.status.success() {
        return Err(failed(format!("gleaner-bench: {}", String::from_utf8_lossy(&output.stderr))));
    }
    read(&file)
}

fn saved(content: &[u8]) -> Result<BenchResult> {
    let file = tempfile::NamedTempFile::new().map_err(Error::system("make a temporary file"))?;
    fs::write(file.path(), content).map_err(Error::file("write", file.path()))?;
    read(file.path())
}

fn read(file: &Path) -> Result<BenchResult> {
    BenchResult::read(file).map_err(|error| failed(error.to_string()))
}

/// `gleaner-host diagnose`, which records.
struct Recorder {
    process: Child,
    errors: BufReader<ChildStderr>,
    said: String,
}

impl Recorder {
    /// Returns once it counts: then it says what this processor hides, PAUSE loops at least.
    fn start(seconds: u64) -> Result<Self> {
        let mut process = Command::new("gleaner-host")
            .args(["diagnose", "--json", "--budget", "100", "--seconds", &seconds.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::system("run gleaner-host"))?;
        let errors = process.stderr.take().ok_or_else(|| failed("gleaner-host has no stderr".to_owned()))?;
        let mut recorder = Self { process, errors: BufReader::new(errors), said: String::new() };
        recorder
            .errors
            .read_line(&mut recorder.said)
            .map_err(Error::system("read what gleaner-host says"))?;
        if recorder.said.is_empty() {
            return Err(failed("gleaner-host ended, and did not say what is hidden".to_owned()));
        }
        Ok(recorder)
    }

    fn end(self) -> Result<Report> {
        let output = self.process.wait_with_output().map_err(Error::system("wait for gleaner-host"))?;
        serde_json::from_slice(&output.stdout).map_err(|error| Error::Protocol {
            who: "gleaner-host diagnose --json".to_owned(),
            what: format!("{error}: {}", self.said),
        })
    }
}

fn failed(error: String) -> Error {
    Error::Guest { vm: "host".to_owned(), error }
}
