//! Fair shares: virtual times of vCPUs, whose VM's weight is divided among those that were active of late (§3.2.1 of the paper).

use crate::native;
use crate::urgency::UrgentConfig;

/// Averages of active vCPUs are in parts of this. `ACTIVE_UNIT`.
pub const ACTIVE_UNIT: u32 = 64;
/// The share of a task of weight 100, whose virtual time is the real one. `NORMAL_SHARE`.
pub const NORMAL_SHARE: u64 = 6400;

/// What one of a VM's vCPUs has of the VM's weight, 1 to 10000, if `active` of them, in parts of [`ACTIVE_UNIT`], were
/// active on average.
pub fn share(weight: u32, active: u32) -> u64 {
    native::share_of(weight, active)
}

/// The average of active vCPUs after `span_ns`, in which they were active for `summed_ns` together. What was before counts
/// as `window_ns`.
pub fn active_average(before: u32, summed_ns: u64, span_ns: u64, window_ns: u64) -> u32 {
    // SAFETY: their sum does not overflow.
    unsafe { native::active_average(before, summed_ns, span_ns.min(u64::MAX - window_ns), window_ns) }
}

/// By how much virtual time advances in `ns`; a share of 0 counts as [`NORMAL_SHARE`].
pub fn virtual_time(ns: u64, share: u64) -> u64 {
    // SAFETY: the share is not 0.
    unsafe { native::virtual_time(ns, or_normal(share)) }
}

/// Whether an urgent vCPU may preempt. A share of 0 counts as [`NORMAL_SHARE`].
pub(crate) fn urgent_may_preempt(
    rules: &UrgentConfig,
    share: u64,
    urgent_vtime: u64,
    other_vtime: u64,
) -> bool {
    // SAFETY: the share is not 0.
    unsafe { native::urgent_may_preempt(rules, or_normal(share), urgent_vtime, other_vtime) }
}

fn or_normal(share: u64) -> u64 {
    if share == 0 { NORMAL_SHARE } else { share }
}

/// Where a task that slept starts, whose virtual time was `own`: it has saved up one slice at most. That counts from `here`,
/// the virtual time of its pCPU, if that lags behind `floor`, that of all pCPUs. It is at most as far `ahead` of its pCPU as it
/// was of those who waited where it fell asleep.
pub fn vtime_after_sleep(own: u64, ahead: u64, here: u64, floor: u64, slice_ns: u64) -> u64 {
    native::vtime_after_sleep(own, ahead, here, floor, slice_ns)
}

/// Whether a woken task may preempt another one in the order of virtual time: it has had less by more than a third of a slice.
pub fn woken_may_preempt(own: u64, other: u64, slice_ns: u64) -> bool {
    native::woken_may_preempt(own, other, slice_ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNIT: u32 = ACTIVE_UNIT;
    const WINDOW: u64 = 10_000_000;
    const SLICE: u64 = 3_000_000;

    proptest! {
        #[test]
        fn the_shares_of_active_vcpus_add_up_to_the_vms_weight(weight in 1_u32..=10_000, vcpus in 1_u32..=64) {
            let whole = u64::from(weight * UNIT);
            let parts = u64::from(vcpus) * share(weight, vcpus * UNIT);
            prop_assert!(parts <= whole && parts + u64::from(vcpus) > whole);
            prop_assert_eq!(share(weight, 0), whole, "an idle VM's first vCPU has all of it");
        }

        #[test]
        fn an_average_lies_between_what_was_and_what_is(before in 0_u32..=64, now in 0_u32..=64, span in 1..=100 * WINDOW) {
            let average = active_average(before * UNIT, u64::from(now) * span, span, WINDOW);
            let (least, most) = (before.min(now) * UNIT, before.max(now) * UNIT);
            prop_assert!(average + 1 >= least && average <= most);
            let after_long = active_average(before * UNIT, u64::from(now) * 100 * WINDOW, 100 * WINDOW, WINDOW);
            prop_assert!(after_long.abs_diff(now * UNIT) <= UNIT, "{after_long}");
        }

        #[test]
        fn equal_virtual_times_are_times_by_share(ns in 0_u64..10_000_000_000, weight in 1_u32..=1_000) {
            let (one, ten) = (share(weight, UNIT), share(10 * weight, UNIT));
            prop_assert!(virtual_time(ns, one).abs_diff(virtual_time(10 * ns, ten)) <= 10);
            prop_assert_eq!(virtual_time(ns, share(100, 0)), ns, "weight 100 is the clock's pace");
        }

        #[test]
        fn sleep_saves_up_a_slice_at_most_and_costs_nothing(
            own in any::<u64>(), ahead in any::<u64>(), here in any::<u64>(), floor in any::<u64>(),
        ) {
            let after = vtime_after_sleep(own, ahead, here, floor, SLICE);
            prop_assert!(after >= own || after == here + ahead);
            prop_assert!(after.saturating_add(SLICE) >= here.min(floor));
            prop_assert!(after <= own || after <= here.min(floor));
        }

        #[test]
        fn whoever_has_woken_preempts_only_those_who_have_had_more(
            own in any::<u64>(), more in 0..3 * SLICE, slice in 0..3 * SLICE,
        ) {
            let other = own.saturating_add(more);
            prop_assert_eq!(woken_may_preempt(own, other, slice), other - own > slice / 3);
            prop_assert!(!woken_may_preempt(other, own, slice));
        }

        #[test]
        fn whoever_moves_is_no_further_ahead_of_the_others_than_before(
            own in 0_u64..1 << 62, others in 0_u64..1 << 62, here in 0_u64..1 << 62,
        ) {
            let ahead = own.saturating_sub(others);
            let after = vtime_after_sleep(own, ahead, here, here, SLICE);
            prop_assert!(after.saturating_sub(here) <= ahead);
            let stays = vtime_after_sleep(own, ahead, others, others, SLICE);
            prop_assert!(stays == own || stays == others.saturating_sub(SLICE));
        }
    }

    #[test]
    fn no_time_leaves_an_average_as_it_was() {
        assert_eq!(active_average(100, 5, 0, WINDOW), 100);
    }
}
