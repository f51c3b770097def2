//! Formats what the host recorded as text.

use std::fmt;

use super::RowOverhead;
use super::host::{Cycles, HostOrigin, Part};

/// Reasons with a smaller share of `C_v` are left out.
const SHOWN: f64 = 0.0005;
/// Width of the names.
const NAME: usize = 32;

pub(super) fn write(f: &mut fmt::Formatter<'_>, host: &HostOrigin, overheads: &[RowOverhead]) -> fmt::Result {
    writeln!(
        f,
        "\nBy the host's record of VM {} ({:.1} s, {} pCPUs, Linux {}): time on pCPUs per unit of work (C_v),\n\
         and its part of δη_r (Figures 4b and 9)",
        host.vm, host.span_s, host.pcpus, host.kernel
    )?;
    for row in overheads {
        let Some(cycles) = &row.cycles else { continue };
        let name = format!("{}, {}  {}", row.row, row.mode, row.overhead.scenario);
        writeln!(f, "{name:NAME$} {:>12} {:>8} {:>10} {:>10}", "per unit", "of C_v", "δη_r", "exits")?;
        body(f, cycles)?;
    }
    Ok(())
}

fn body(f: &mut fmt::Formatter<'_>, cycles: &Cycles) -> fmt::Result {
    let mut line = |name: &str, part: &Part, exits: Option<f64>| {
        let exits = exits.map(|exits| format!(" {exits:>10.2}")).unwrap_or_default();
        writeln!(
            f,
            "{name:NAME$} {:>12} {:>6.1} % {:>+8.1} %{exits}",
            seconds(part.cpu_s_per_op),
            100.0 * share(part, cycles),
            100.0 * part.delta_eta_r
        )
    };
    line("  guest", &cycles.guest, None)?;
    for (name, part) in [("    user", &cycles.user), ("    kernel", &cycles.kernel)] {
        if let Some(part) = part {
            line(name, part, None)?;
        }
    }
    line("  hypervisor", &cycles.hypervisor, None)?;
    for reason in cycles.reasons.iter().filter(|reason| share(&reason.part, cycles) >= SHOWN) {
        let (name, group) = (reason.reason.name(), reason.group.name());
        let name = if name == group { format!("    {name}") } else { format!("    {name} ({group})") };
        line(&name, &reason.part, Some(reason.exits_per_op))?;
    }
    Ok(())
}

fn share(part: &Part, cycles: &Cycles) -> f64 {
    part.cpu_s_per_op / cycles.cpu_s_per_op
}

/// A length of time with three digits.
fn seconds(value: f64) -> String {
    let (value, unit) = match value {
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-3 => (s * 1e6, "us"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}
