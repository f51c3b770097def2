//! Decisions of [`super::Auto`], with what they are based on.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Sample, Wakes};
use crate::text::length;

/// One decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Since the start.
    pub at: Duration,
    /// `halt_poll_ns` until then.
    pub before_ns: u32,
    /// `halt_poll_ns` from then on.
    pub limit_ns: u32,
    /// What it is based on.
    pub why: Why,
}

/// What a decision is based on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The vCPUs hardly halt.
    Idle {
        /// Halts per second, of all VMs.
        halts: f64,
    },
    /// KVM polls for no vCPU, whatever its parameter: their guests do.
    GuestsPoll {
        /// vCPUs that halt.
        vcpus: u32,
    },
    /// The vCPUs want more pCPUs than there are.
    Contended {
        /// The share of the time in which they want to run that they wait after preemption, 0..=1.
        preempted: f64,
    },
    /// Two limits were compared.
    Compared {
        /// How it ended.
        outcome: Outcome,
        /// What was measured with the shorter limit.
        less: Side,
        /// What was measured with the longer one.
        more: Side,
    },
}

/// How a comparison of two limits ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The longer one is proven to be better.
    Pays,
    /// That is ruled out.
    DoesNotPay,
    /// It would be, but one VM's vCPUs wait for longer after preemption than it saves them.
    Harms {
        /// The VMM's process.
        pid: u32,
    },
    /// Neither.
    Undecided,
    /// KVM went on polling for longer than the shorter one.
    NotFollowed {
        /// For so many vCPUs.
        vcpus: u32,
    },
}

/// What was measured with one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The limit, in ns.
    pub limit_ns: u32,
    /// For how long it was measured.
    pub measured: Duration,
    /// The mean latency of a wake-up.
    pub wake_up: Duration,
    /// The share of the halts that ended while KVM polled, 0..=1.
    pub success: f64,
    /// pCPUs that polling took.
    pub polling: f64,
    /// vCPUs that waited for a pCPU after preemption, on average.
    pub preemption: f64,
}

impl Side {
    /// Of the sum of the samples with `limit_ns`.
    pub fn of(limit_ns: u32, sum: &Sample, wakes: Wakes) -> Self {
        Self {
            limit_ns,
            measured: sum.period,
            wake_up: sum.wake_up(wakes),
            success: sum.success(),
            polling: sum.polling(),
            preemption: sum.preemption(),
        }
    }
}

fn ns(time: Duration) -> String {
    length(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// A limit within a sentence.
fn limit(ns: u32) -> String {
    if ns == 0 { "no polling".to_owned() } else { format!("polling for up to {}", length(ns.into())) }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, before_ns, limit_ns, why } = self;
        write!(f, "{:.1} s: halt_poll_ns ", at.as_secs_f64())?;
        if before_ns == limit_ns {
            write!(f, "stays {limit_ns}: {why}")
        } else {
            write!(f, "{before_ns} -> {limit_ns}: {why}")
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle { halts } => {
                write!(f, "the vCPUs halt {halts:.0} times a second, too rarely for polling to matter")
            }
            Self::GuestsPoll { vcpus } => write!(
                f,
                "the guests of all {vcpus} vCPUs that halt poll themselves, and asked the host not to"
            ),
            Self::Contended { preempted } => write!(
                f,
                "vCPUs wait {:.1} % of the time in which they want to run for a pCPU after preemption; polling would take \
                 pCPUs from them",
                100.0 * preempted
            ),
            Self::Compared { outcome, less, more } => {
                let (long, short) = (limit(more.limit_ns), limit(less.limit_ns));
                match outcome {
                    Outcome::Pays => write!(f, "{long} pays against {short}: "),
                    Outcome::DoesNotPay => write!(f, "{long} does not pay against {short}: "),
                    Outcome::Undecided => write!(f, "whether {long} pays against {short} is undecided: "),
                    Outcome::Harms { pid } => write!(
                        f,
                        "{long} against {short} makes the vCPUs of process {pid} wait longer after preemption than it \
                         saves them: "
                    ),
                    Outcome::NotFollowed { vcpus } => {
                        return write!(
                            f,
                            "KVM keeps polling for {vcpus} vCPUs for longer than {}: their VMM set a limit of its own \
                             (KVM_CAP_HALT_POLL), or Linux is older than 6.1",
                            less.limit_ns
                        );
                    }
                }?;
                write!(
                    f,
                    "wake-ups {} against {}, {:.0} % against {:.0} % of the halts ended while KVM polled, polling took {:.3} \
                     pCPUs against {:.3}",
                    ns(more.wake_up),
                    ns(less.wake_up),
                    100.0 * more.success,
                    100.0 * less.success,
                    more.polling,
                    less.polling
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(before_ns: u32, limit_ns: u32, why: Why) -> String {
        Decision { at: Duration::from_millis(2340), before_ns, limit_ns, why }.to_string()
    }

    #[test]
    fn a_decision_is_one_line_with_what_it_is_based_on() {
        let less = Side { wake_up: Duration::from_micros(41), ..Side::default() };
        let more = Side {
            limit_ns: 200_000,
            wake_up: Duration::from_nanos(12_100),
            success: 0.83,
            polling: 0.42,
            ..Side::default()
        };
        let compared = |outcome| Why::Compared { outcome, less, more };
        assert_eq!(
            text(0, 200_000, compared(Outcome::Pays)),
            "2.3 s: halt_poll_ns 0 -> 200000: polling for up to 200 us pays against no polling: wake-ups 12.1 us against \
             41.0 us, 83 % against 0 % of the halts ended while KVM polled, polling took 0.420 pCPUs against 0.000"
        );
        let why = [
            compared(Outcome::DoesNotPay),
            compared(Outcome::Harms { pid: 7 }),
            compared(Outcome::Undecided),
            compared(Outcome::NotFollowed { vcpus: 3 }),
            Why::Idle { halts: 3.0 },
            Why::GuestsPoll { vcpus: 2 },
            Why::Contended { preempted: 0.2 },
        ];
        for why in why {
            let text = text(7, 7, why);
            assert!(text.starts_with("2.3 s: halt_poll_ns stays 7: ") && !text.contains('\n'), "{text}");
        }
    }
}
