//! Tests of fair shares, which the scheduler alone has: virtual times of vCPUs, whose VM's weight is divided among those that were
//! active of late (§3.2.1 of the paper).

use proptest::prelude::*;

// SAFETY: the functions have these types in logic.h; of those that are safe, every value of the arguments is allowed.
unsafe extern "C" {
    safe fn share_of(weight: u32, active: u32) -> u64;
    safe fn active_average(before: u32, summed: u64, span: u64, window: u64) -> u32;
    #[link_name = "virtual_time"]
    unsafe fn divide_by_share(ns: u64, share: u64) -> u64;
    safe fn vtime_after_sleep(own: u64, here: u64, floor: u64, slice: u64) -> u64;
}

/// `SHARE_UNIT` and `ACTIVE_UNIT` of logic.h.
const UNIT: u32 = 64;
const WINDOW: u64 = 10_000_000;
const SLICE: u64 = 3_000_000;

fn virtual_time(ns: u64, share: u64) -> u64 {
    assert!(share > 0);
    // SAFETY: it divides by the share, which is not 0.
    unsafe { divide_by_share(ns, share) }
}

proptest! {
    #[test]
    fn the_shares_of_active_vcpus_add_up_to_the_vms_weight(weight in 1_u32..=10_000, vcpus in 1_u32..=64) {
        let whole = u64::from(weight * UNIT);
        let parts = u64::from(vcpus) * share_of(weight, vcpus * UNIT);
        prop_assert!(parts <= whole && parts + u64::from(vcpus) > whole);
        prop_assert_eq!(share_of(weight, 0), whole, "an idle VM's first vCPU has all of it");
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
        let (one, ten) = (share_of(weight, UNIT), share_of(10 * weight, UNIT));
        prop_assert!(virtual_time(ns, one).abs_diff(virtual_time(10 * ns, ten)) <= 10);
        prop_assert_eq!(virtual_time(ns, share_of(100, 0)), ns, "weight 100 is the clock's pace");
    }

    #[test]
    fn sleep_saves_up_a_slice_at_most_and_costs_nothing(
        own in any::<u64>(), here in any::<u64>(), floor in any::<u64>(),
    ) {
        let after = vtime_after_sleep(own, here, floor, SLICE);
        prop_assert!(after >= own);
        prop_assert!(after.saturating_add(SLICE) >= here.min(floor));
        prop_assert!(after == own || after <= here.min(floor));
    }
}

#[test]
fn no_time_leaves_an_average_as_it_was() {
    assert_eq!(active_average(100, 5, 0, WINDOW), 100);
}
