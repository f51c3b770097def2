//! What a hypervisor's scheduler can decide when it takes interrupts between vCPUs for the demand for
//! coordination (ASPLOS'13, "the paper" here). Pure rules that drive the simulator and that a kernel scheduler
//! can be checked against. Times are nanoseconds of the host's clock.

mod cosched;
mod placement;
mod urgent;
mod yielding;

pub use cosched::{Coscheduling, gang, too_far_ahead};
pub use placement::{PcpuLoad, VcpuPlacement, affinity};
pub use urgent::{Urgency, UrgentConfig};
pub use yielding::{DirectedYield, Spinner, yield_target};
