//! Which retention method the measured cost of wake-ups makes the best.

use std::time::Duration;

use gleaner_policy::{Method, WakeCosts};

/// Whether retention makes a wake-up at least 1.5 times cheaper than `halt`, which is what the polling must
/// earn.
fn worthwhile(cost: Duration, halt: Duration) -> bool {
    cost.as_nanos() * 3 <= halt.as_nanos() * 2
}

/// Whether `cost` is within 20 % of the `best`.
fn as_good(cost: Duration, best: Duration) -> bool {
    cost.as_nanos() * 5 <= best.as_nanos() * 6
}

/// Tie-break, most preferred first: the kernel's own polling before threads of ours, and of those the one that
/// needs no IPI. Differs from [`Method::ALL`], which is ordered by cost.
const PREFERENCE: [Method; 4] = [Method::Haltpoll, Method::QosPoll, Method::YieldIpiFree, Method::Yield];

/// The retention method to use out of `available`, and a sentence that says why, with the numbers. Takes the
/// cheapest wake-up across vCPUs, or the least intrusive method within 20 % of it; [`Method::Halt`] if nothing
/// was measured or no method makes a wake-up at least 1.5 times cheaper.
pub(crate) fn choose_method(costs: &WakeCosts, available: &[Method]) -> (Method, String) {
    let measured: Vec<_> = PREFERENCE
        .into_iter()
        .filter(|method| available.contains(method))
        .filter_map(|method| Some((method, costs.across(method)?)))
        .collect();
    let Some(&(best, best_cost)) = measured.iter().min_by_key(|(_, cost)| *cost) else {
        return (Method::Halt, "no available retention method has been measured here".to_owned());
    };
    let halt = costs.halt_cost();
    let halt_is = if costs.across(Method::Halt).is_some() { "measured" } else { "assumed" };
    if !worthwhile(best_cost, halt) {
        let reason = format!(
            "the cheapest wake-up across vCPUs, {best_cost:.1?} with {best}, is not 1.5 times cheaper than the \
             {halt:.1?} {halt_is} for a halted vCPU"
        );
        return (Method::Halt, reason);
    }
    let (method, cost) = measured
        .into_iter()
        .find(|(_, cost)| as_good(*cost, best_cost) && worthwhile(*cost, halt))
        .unwrap_or((best, best_cost));
    let instead = if method == best {
        String::new()
    } else {
        format!("; {best} is hardly faster ({best_cost:.1?}) and more intrusive")
    };
    let reason = format!(
        "a wake-up across vCPUs takes {cost:.1?} with {method} against the {halt:.1?} {halt_is} for a halted \
         vCPU{instead}"
    );
    (method, reason)
}

#[cfg(test)]
mod tests {
    use gleaner_policy::{ASSUMED_HALT_COST, Placement, WakeCost};
    use proptest::prelude::*;

    use super::*;

    fn table(medians_us: &[(Method, u64)]) -> WakeCosts {
        let mut costs = WakeCosts::default();
        for &(method, us) in medians_us {
            let median = Duration::from_micros(us);
            costs.insert(
                method,
                Placement::AcrossHalting,
                WakeCost { min: median / 2, median, p99: median * 3, n: 1000 },
            );
        }
        costs
    }

    fn chosen(medians_us: &[(Method, u64)]) -> Method {
        choose_method(&table(medians_us), &Method::ALL).0
    }

    #[test]
    fn the_cheapest_method_wins() {
        use Method::{Halt, Haltpoll, QosPoll, Yield, YieldIpiFree};
        assert_eq!(
            chosen(&[(Halt, 50), (Haltpoll, 9), (QosPoll, 8), (YieldIpiFree, 2), (Yield, 7)]),
            YieldIpiFree
        );
        assert_eq!(chosen(&[(Halt, 50), (Haltpoll, 20), (QosPoll, 9)]), QosPoll);
    }

    #[test]
    fn within_20_percent_the_less_intrusive_one_wins() {
        use Method::{Halt, Haltpoll, QosPoll, Yield, YieldIpiFree};
        assert_eq!(chosen(&[(Halt, 50), (Haltpoll, 12), (QosPoll, 10)]), Haltpoll);
        assert_eq!(chosen(&[(Halt, 50), (Haltpoll, 13), (QosPoll, 10)]), QosPoll);
        assert_eq!(chosen(&[(Halt, 50), (Yield, 10), (YieldIpiFree, 12)]), YieldIpiFree);
    }

    #[test]
    fn haltpoll_that_makes_it_worse_is_not_chosen() {
        use Method::{Halt, Haltpoll, YieldIpiFree};
        // A guest on overcommitted pCPUs.
        assert_eq!(chosen(&[(Halt, 140), (Haltpoll, 350), (YieldIpiFree, 85)]), YieldIpiFree);
        assert_eq!(chosen(&[(Halt, 140), (Haltpoll, 350)]), Halt);
    }

    #[test]
    fn a_gain_below_one_and_a_half_is_not_worth_it() {
        use Method::{Halt, Haltpoll};
        assert_eq!(chosen(&[(Halt, 30), (Haltpoll, 21)]), Halt);
        assert_eq!(chosen(&[(Halt, 30), (Haltpoll, 20)]), Haltpoll);
    }

    #[test]
    fn without_a_measured_halt_its_cost_is_assumed_and_said_so() {
        let (method, reason) = choose_method(&table(&[(Method::QosPoll, 8)]), &Method::ALL);
        assert_eq!(method, Method::QosPoll);
        assert_eq!(
            reason,
            "a wake-up across vCPUs takes 8.0µs with qos-poll against the 30.0µs assumed for a halted vCPU"
        );
        assert_eq!(chosen(&[(Method::QosPoll, 25)]), Method::Halt);
    }

    #[test]
    fn without_a_measurement_nothing_is_retained() {
        let (method, reason) = choose_method(&WakeCosts::default(), &Method::ALL);
        assert_eq!(
            (method, reason.as_str()),
            (Method::Halt, "no available retention method has been measured here")
        );
        assert_eq!(WakeCosts::default().halt_cost(), ASSUMED_HALT_COST);
    }

    proptest! {
        #[test]
        fn only_an_available_measured_and_worthwhile_method_is_chosen(
            medians in proptest::collection::vec(1u64..200, 5),
            measured in proptest::collection::vec(any::<bool>(), 5),
            available in proptest::collection::vec(any::<bool>(), 5),
        ) {
            let pick = |mask: &[bool]| -> Vec<_> {
                Method::ALL.into_iter().zip(mask).filter(|(_, on)| **on).map(|(m, _)| m).collect()
            };
            let (measured, available) = (pick(&measured), pick(&available));
            let entries: Vec<_> =
                Method::ALL.into_iter().zip(medians).filter(|(m, _)| measured.contains(m)).collect();
            let costs = table(&entries);
            let (method, _) = choose_method(&costs, &available);
            if method != Method::Halt {
                prop_assert!(available.contains(&method) && measured.contains(&method));
                let cost = costs.across(method).unwrap();
                prop_assert!(cost * 3 <= costs.halt_cost() * 2);
                for other in available.into_iter().filter(|m| *m != Method::Halt) {
                    prop_assert!(costs.across(other).is_none_or(|c| cost * 5 <= c * 6));
                }
            }
        }
    }
}
