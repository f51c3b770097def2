//! Tests views and their drawings, made from readings.

use std::time::Duration;

use gleaner_kernel::idle::{IdleCounters, IdleSource};
use gleaner_kernel::interrupts::InterruptCounters;
use gleaner_kernel::stat::{CpuTimes, SystemStat};
use gleaner_policy::{CpuId, CpuSet, Method, Mode, PolicyConfig, Retention, Setting};
use gleaner_proto::journal::{Record, VERSION};
use gleaner_trace::{Histogram, Snapshot};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::draw::{Palette, draw};
use super::keys::Controls;
use super::reading::Reading;
use super::run::Run;
use super::text::{lines, text};
use super::view::{GleanerState, Status, View, Wakes};

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Counters of `vcpus` identical vCPUs after `s` seconds: 1000 halts and 3000 polls a second, 20 % polling, 60 % busy,
/// 10 % stolen, 150 IPIs.
fn reading(s: u64, vcpus: u32) -> Reading {
    let cpus = || (0..vcpus).map(CpuId);
    let idle = |cpu| IdleCounters {
        cpu,
        halts: 1000 * s,
        halt_time: secs(s) / 10,
        polls: 3000 * s,
        poll_time: secs(s) / 5,
        source: IdleSource::Cpuidle,
    };
    let irqs = InterruptCounters { reschedule: 100 * s, call: 50 * s, timer: 250 * s, tlb: 0 };
    let times = CpuTimes {
        user: secs(s) * 6 / 10,
        idle: secs(s) * 3 / 10,
        steal: secs(s) / 10,
        ..CpuTimes::default()
    };
    let mut trace = Snapshot { one_in: 1, covered: secs(s), ..Snapshot::default() };
    // Bucket 64 holds 1024 to 1151 ns.
    let halted = Histogram { count: 500 * s, total_ns: 0, buckets: [(64, 500 * s)].into() };
    trace.wakes.halted = halted;
    Reading {
        at: secs(s),
        idle: Some(cpus().map(idle).collect()),
        interrupts: Some(cpus().map(|cpu| (cpu, irqs)).collect()),
        stat: Some(SystemStat { cpus: cpus().map(|cpu| (cpu, times)).collect(), switches: 0 }),
        trace: Ok(trace),
        haltpoll: Some(Duration::from_micros(200)),
        missing: Vec::new(),
    }
}

/// A run that retains vCPU 0 of `vcpus` with a limit of 50 us, with `notes` notes.
fn run(vcpus: u32, notes: u64) -> Run {
    let setting = Setting {
        active: CpuSet::first(1),
        retention: Retention { method: Method::Haltpoll, limit: Duration::from_micros(50) },
    };
    let config = PolicyConfig { mode: Mode::Fixed(setting), ..PolicyConfig::default() };
    let mut run = Run::start(Record::Start {
        version: VERSION,
        unix_ms: 0,
        workload: "redis-server --port 0".to_owned(),
        vcpus: CpuSet::first(vcpus),
        config: Box::new(config),
        limits: Vec::new(),
    })
    .unwrap();
    for n in 1..=notes {
        run.update(Record::Note { at: secs(n), text: format!("note {n}") });
    }
    run
}

fn view(vcpus: u32, run: Option<&Run>, holder: Option<u32>) -> View {
    let work = GleanerState { daemon: None, run, holder, problem: None };
    View::new(&reading(1, vcpus), &reading(3, vcpus), work, "the whole machine")
}

fn screen(view: &View, controls: Controls, colours: bool, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let palette = Palette { colours };
    terminal.draw(|frame| draw(view, Some(&controls), palette, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn near(number: Option<f64>, wanted: f64) -> bool {
    number.is_some_and(|number| (number - wanted).abs() < 1e-6 * wanted)
}

#[test]
fn rates_are_those_of_the_interval() {
    let view = view(2, None, None);
    let vcpu = &view.vcpus[1];
    // A poll that times out is a halt, too: there are as many periods as the larger number, not the sum.
    assert!(near(vcpu.idle_per_s, 3000.0) && near(vcpu.halts_per_s, 1000.0), "{vcpu:?}");
    assert!(near(vcpu.polling, 0.2) && near(vcpu.busy, 0.6) && near(vcpu.steal, 0.1), "{vcpu:?}");
    assert!(near(vcpu.ipis_per_s, 150.0) && near(vcpu.timer_per_s, 250.0), "{vcpu:?}");
    assert_eq!((vcpu.cpu, vcpu.active), (Some(CpuId(1)), None));
    assert!(near(view.all.idle_per_s, 6000.0) && near(view.all.busy, 0.6), "{:?}", view.all);
    let Wakes::Traced { kinds, .. } = &view.wakes else { panic!("{:?}", view.wakes) };
    assert!(near(kinds[3].per_s, 500.0) && near(kinds[3].p50_us, 1.088), "{kinds:?}");
    assert_eq!((kinds[0].per_s, kinds[0].p50_us), (Some(0.0), None));
}

#[test]
fn what_cannot_be_read_is_absent_and_said() {
    let mut now = reading(3, 2);
    now.interrupts = None;
    now.trace = Err("there is no BTF".to_owned());
    now.missing = vec!["interrupts: no such file".to_owned()];
    let work = GleanerState { daemon: None, run: None, holder: None, problem: None };
    let view = View::new(&reading(1, 2), &now, work, "the whole machine");
    assert_eq!((view.vcpus[0].ipis_per_s, view.all.ipis_per_s), (None, None));
    assert!(near(view.vcpus[0].polling, 0.2));
    let text = text(&view);
    assert!(text.contains("Wake-up latencies are not available: there is no BTF"), "{text}");
    assert!(text.contains("not available: interrupts: no such file"), "{text}");
    let first = View::new(&reading(1, 2), &reading(1, 2), work, "");
    assert_eq!((first.vcpus[0].idle_per_s, first.all.busy), (None, None), "no interval, no rates");
}

#[test]
fn a_vcpu_that_came_online_has_no_rates_yet() {
    let work = GleanerState { daemon: None, run: None, holder: None, problem: None };
    let view = View::new(&reading(1, 1), &reading(3, 2), work, "");
    assert!(view.vcpus[0].idle_per_s.is_some() && view.vcpus[1].idle_per_s.is_none());
    assert_eq!(view.vcpus.len(), 2);
}

#[test]
fn the_state_of_a_run_follows_from_its_journal_and_the_lock() {
    let mut run = run(2, 0);
    let running = view(2, Some(&run), Some(77));
    let workload = &running.workloads[0];
    assert_eq!((workload.status, workload.gleaner_pid), (Status::Running, Some(77)));
    assert_eq!(
        (&workload.active, &workload.inactive),
        (&CpuSet::first(1), &[CpuId(1)].into_iter().collect())
    );
    assert_eq!((workload.method, workload.limit_us), (Method::Haltpoll, Some(50.0)));
    assert_eq!(running.vcpus.iter().map(|v| v.active).collect::<Vec<_>>(), [Some(true), Some(false)]);
    assert_eq!(running.journal, None);
    let killed = view(2, Some(&run), None);
    assert_eq!(killed.workloads[0].status, Status::Killed);
    assert!(text(&killed).contains("`gleaner restore`"));
    run.update(Record::End { at: secs(9), summary: gleaner_proto::journal::Summary::default() });
    assert_eq!(view(2, Some(&run), None).workloads[0].status, Status::Ended);
    assert!(view(2, Some(&run), Some(78)).journal.unwrap().contains("--journal"));
    assert!(view(2, None, Some(78)).journal.unwrap().contains("(pid 78)"));
    assert!(view(2, None, None).journal.unwrap().contains("no Gleaner is at work"));
}

#[test]
fn everything_fits_on_eighty_columns_and_twenty_four_lines() {
    let run = run(2, 9);
    let buffer = screen(&view(2, Some(&run), Some(77)), Controls::default(), true, (80, 24));
    let expected = "\
gleaner top: 2 vCPUs, idle ones poll up to 200 us (haltpoll), in 2.0 s
Workload, 9.0 s: running, gleaner is pid 77
  redis-server --port 0
  active vCPUs 0, inactive 1; retention haltpoll, limit 50 us
  nothing is on trial
vCPU state         busy  steal  polling    idle/s   halts/s   IPIs/s
0    active      60.0 % 10.0 %   20.0 %      3000      1000      150
1    inactive    60.0 % 10.0 %   20.0 %      3000      1000      150
all              60.0 % 10.0 %   20.0 %      6000      2000      300
Wake-up until run, us        per s    median       p90       p99
same vCPU                        0         -         -         -
other vCPU, awake                0         -         -         -
other vCPU, polling              0         -         -         -
other vCPU, halted             500       1.1       1.1       1.1
taken off, to run again          0         -         -         -
  of the whole machine; tracing costs 0.0 % of the CPU
Decisions, newest first
at 9.000 s: note 9
at 8.000 s: note 8
at 7.000 s: note 7
at 6.000 s: note 6
at 5.000 s: note 5
at 4.000 s: note 4
q quit   p pause/go on   space refresh   down/up older/newer   home newest";
    assert_eq!(lines(&buffer).join("\n"), expected);
}

/// What the daemon does, with three workloads.
fn daemon() -> gleaner_control::Status {
    serde_json::from_str(include_str!("../../../control/tests/status.json")).unwrap()
}

fn daemon_view(daemon: &gleaner_control::Status, vcpus: u32) -> View {
    let run = run(2, 9);
    let work = GleanerState { daemon: Some(daemon), run: Some(&run), holder: Some(77), problem: None };
    View::new(&reading(1, vcpus), &reading(3, vcpus), work, "the whole machine")
}

#[test]
fn three_workloads_of_the_daemon_fit_on_eighty_columns_and_twenty_four_lines() {
    let buffer = screen(&daemon_view(&daemon(), 2), Controls::default(), true, (80, 24));
    insta::assert_snapshot!("daemon-80x24", lines(&buffer).join("\n"));
}

#[test]
fn many_workloads_leave_room_for_the_rest() {
    let mut daemon = daemon();
    daemon.workloads = vec![daemon.workloads[2].clone(); 30];
    let shown = lines(&screen(&daemon_view(&daemon, 64), Controls::default(), true, (80, 24)));
    assert!(shown.iter().any(|line| line == "  and 25 more: `gleaner status`"), "{shown:#?}");
    assert!(shown.iter().any(|line| line.starts_with("all ")), "{shown:#?}");
    assert!(shown.iter().any(|line| line.starts_with("4 s ago, mariadb: tested")), "{shown:#?}");
    daemon.workloads.clear();
    let shown = lines(&screen(&daemon_view(&daemon, 2), Controls::default(), true, (80, 24)));
    assert!(shown.iter().any(|line| line == "  no workload is running"), "{shown:#?}");
}

#[test]
fn a_vcpu_is_active_if_any_workload_runs_on_it() {
    let mut daemon = daemon();
    let active = |daemon: &gleaner_control::Status| {
        daemon_view(daemon, 3).vcpus.iter().map(|v| v.active).collect::<Vec<_>>()
    };
    assert_eq!(active(&daemon), [Some(true), Some(true), None]);
    daemon.workloads.remove(1);
    assert_eq!(active(&daemon), [Some(true), Some(false), None]);
}

#[test]
fn a_larger_screen_shows_more() {
    let run = run(2, 30);
    let shown = lines(&screen(&view(2, Some(&run), Some(77)), Controls::default(), true, (120, 40)));
    assert_eq!(shown.len(), 40);
    assert!(shown[5].ends_with("timer/s") && shown[6].ends_with(" 250"), "{shown:?}");
    assert_eq!(shown.iter().filter(|line| line.contains(": note ")).count(), 22);
    assert!(shown[39].starts_with("q quit"), "{shown:?}");
}

#[test]
fn many_vcpus_leave_room_for_decisions() {
    let run = run(64, 9);
    let shown = lines(&screen(&view(64, Some(&run), Some(77)), Controls::default(), true, (80, 24)));
    assert!(shown.iter().any(|line| line.contains("and 56 more")), "{shown:?}");
    assert_eq!(shown.iter().filter(|line| line.contains(": note ")).count(), 3, "{shown:?}");
    assert!(shown.iter().any(|line| line.starts_with("all ")), "{shown:?}");
}

#[test]
fn any_size_can_be_drawn_on() {
    let run = run(2, 9);
    for width in [1, 7, 79, 300] {
        for height in [1, 2, 9, 100] {
            let shown = screen(&view(2, Some(&run), Some(77)), Controls::default(), true, (width, height));
            assert_eq!(lines(&shown).len(), usize::from(height), "{width}x{height}");
        }
    }
}

#[test]
fn choices_show() {
    let run = run(2, 9);
    let controls = Controls { paused: true, skipped: 2 };
    let shown = lines(&screen(&view(2, Some(&run), Some(77)), controls, true, (80, 24)));
    assert!(shown[0].ends_with("PAUSED"), "{shown:?}");
    let heading =
        shown.iter().position(|line| line == "Decisions, newest first (2 newer ones above)").unwrap();
    assert_eq!(shown[heading + 1], "at 7.000 s: note 7");
}

#[test]
fn a_long_sentence_takes_as_many_lines_as_it_needs() {
    let mut run = run(2, 1);
    let long =
        "thread 7 keeps its own affinity, since it chose that itself and not Gleaner, and so does thread 8";
    run.update(Record::Note { at: secs(2), text: long.to_owned() });
    let shown = lines(&screen(&view(2, Some(&run), Some(77)), Controls::default(), true, (80, 24)));
    let first = shown.iter().position(|line| line.starts_with("at 2.000 s")).unwrap();
    assert_eq!(shown[first..first + 2].join(" "), format!("at 2.000 s: {long}"));
    assert_eq!(shown[first + 2], "at 1.000 s: note 1");
}

#[test]
fn without_colours_the_same_is_said() {
    let run = run(2, 9);
    let view = view(2, Some(&run), Some(77));
    let controls = Controls { paused: true, skipped: 0 };
    let plain = screen(&view, controls, false, (80, 24));
    let coloured = screen(&view, controls, true, (80, 24));
    assert_eq!(lines(&plain), lines(&coloured));
    let used = |buffer: &Buffer| {
        buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(!used(&plain) && used(&coloured));
}
