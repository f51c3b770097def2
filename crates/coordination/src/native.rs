//! The functions of `logic.h`, as `native.c` exports them.

use crate::placement::{Beside, Placement, VcpuPlacement};
use crate::urgency::{Urgency, UrgentConfig};

// SAFETY: the functions have these types in logic.h. None of them keeps a pointer, none reads or writes beyond what its
// pointers refer to, and every value of the arguments is allowed.
unsafe extern "C" {
    pub(crate) safe fn urgency_for_time(urgency: &mut Urgency, now: u64, ns: u64);
    pub(crate) safe fn urgency_once_it_runs(urgency: &mut Urgency, ns: u64);
    pub(crate) safe fn urgency_runs(urgency: &mut Urgency, now: u64);
    pub(crate) safe fn urgency_for_event(urgency: &mut Urgency);
    pub(crate) safe fn urgency_acknowledge(urgency: &mut Urgency);
    pub(crate) safe fn urgency_end(urgency: &mut Urgency);
    pub(crate) safe fn urgency_awaits(urgency: &mut Urgency, recipients: u32);
    pub(crate) safe fn urgency_answered(urgency: &mut Urgency);
    pub(crate) safe fn urgency_spins(urgency: &mut Urgency, rules: &UrgentConfig) -> bool;
    pub(crate) safe fn urgency_holds(urgency: &Urgency, now: u64) -> bool;
    pub(crate) safe fn urgency_protects_for(urgency: &Urgency, now: u64, ran_from: u64, slice: u64) -> u64;
    pub(crate) safe fn share_of(weight: u32, active: u32) -> u64;
    pub(crate) safe fn vtime_after_sleep(own: u64, ahead: u64, here: u64, floor: u64, slice: u64) -> u64;
    pub(crate) safe fn woken_may_preempt(own: u64, other: u64, slice: u64) -> bool;
    pub(crate) safe fn halted_soon(before: u32, soon: bool) -> u32;
    pub(crate) safe fn burst_average(before: u64, ns: u64) -> u64;
    pub(crate) safe fn burst_now(average: u64, since: u64) -> u64;
    pub(crate) safe fn runs_beside(own: u64, other: u64) -> Beside;
    pub(crate) safe fn load_level(load: u64, total: u64, pcpus: u32) -> u64;
    pub(crate) safe fn placement_sees(
        placement: &mut Placement,
        has_sibling: bool,
        load: u64,
        total: u64,
        pcpus: u32,
    );
    pub(crate) safe fn placement_allows(
        placement: &Placement,
        rule: VcpuPlacement,
        has_sibling: bool,
    ) -> bool;

    /// # Safety
    /// `span` and `window` add up to less than 2^64.
    pub(crate) unsafe fn active_average(before: u32, summed: u64, span: u64, window: u64) -> u32;
    /// # Safety
    /// `share` is not 0.
    pub(crate) unsafe fn urgent_may_preempt(
        rules: &UrgentConfig,
        share: u64,
        urgent_vtime: u64,
        other_vtime: u64,
    ) -> bool;
    /// # Safety
    /// `share` is not 0.
    pub(crate) unsafe fn virtual_time(ns: u64, share: u64) -> u64;
}
