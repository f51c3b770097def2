//! The machine on which something was measured.

use gleaner_proto::result::Environment;
use maud::{Markup, html};

/// The machine in one line.
pub(crate) fn line(env: &Environment) -> Markup {
    let date = env.date.split('T').next().unwrap_or_default();
    html! {
        (env.vcpus) " × " @if env.cpu_model.is_empty() { "unknown CPU" } @else { (env.cpu_model) }
        " · " (env.hypervisor) " · Linux " (env.kernel) " · " (date)
    }
}

/// Everything about the machine that affects wake-up costs, and `more`.
pub(crate) fn facts(env: &Environment, more: &[(&str, String)]) -> Markup {
    let or_unknown = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    let kind = if env.virtualised { "virtual machine" } else { "physical machine" };
    let cpus = if env.virtualised { "vCPUs" } else { "CPUs" };
    let cpuidle =
        format!("driver {}, governor {}", or_unknown(&env.cpuidle_driver), or_unknown(&env.cpuidle_governor));
    let facts = [
        ("Kernel", format!("{} {}", env.kernel, env.kernel_version)),
        ("Hypervisor", format!("{} ({kind})", or_unknown(&env.hypervisor))),
        ("CPU", format!("{}, {} {cpus}", or_unknown(&env.cpu_model), env.vcpus)),
        ("Memory", format!("{:.1} GiB", env.memory_bytes as f64 / (1u64 << 30) as f64)),
        ("cpuidle", cpuidle),
        ("Preemption", or_unknown(&env.preemption)),
    ];
    let measured = [("Measured", env.date.clone()), ("Gleaner", env.gleaner.clone())];
    html! {
        dl {
            @for (name, value) in facts.iter().chain(more).chain(&measured) { dt { (name) } dd { (value) } }
        }
        @if !env.knobs.is_empty() {
            details {
                summary { "Kernel settings before the run" }
                pre { @for (path, value) in &env.knobs { (path) " = " (value) "\n" } }
            }
        }
    }
}
