//! Which workloads are partners, by who wakes whom: pure, without I/O and clock.

use std::collections::{BTreeMap, BTreeSet};

/// Two workloads are partners if each causes so much of the other's wake-ups, apart from those that its other partners cause:
/// a server's busiest client keeps it awake, so that others hardly ever wake it, though nobody else wakes them.
const SHARE: f64 = 0.25;
/// Fewer wake-ups of a workload show nothing. One that is worth a trial has a hundred per second at least, if each costs
/// 0.25 ms.
const FEWEST: u64 = 20;

/// How often one workload's threads were woken, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Woken<W> {
    /// The workload whose threads were woken.
    pub wakee: W,
    /// The one whose threads woke them; `None` for interrupts of idle vCPUs and what is no workload.
    pub waker: Option<W>,
    /// How often.
    pub number: u64,
}

/// Two workloads that wake each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Partnership<W> {
    /// The first...
    pub one: W,
    /// ...and the other one.
    pub other: W,
    /// The share (0..=1) of the first one's wake-ups that the other one causes...
    pub of_one: f64,
    /// ...and the other way round.
    pub of_other: f64,
}

/// The pairs of workloads that wake each other, those first that do so most.
pub fn partnerships<W: Copy + Ord>(woken: &[Woken<W>]) -> Vec<Partnership<W>> {
    let mut all: BTreeMap<W, u64> = BTreeMap::new();
    let mut by: BTreeMap<(W, W), u64> = BTreeMap::new();
    for one in woken {
        *all.entry(one.wakee).or_default() += one.number;
        if let Some(waker) = one.waker {
            *by.entry((one.wakee, waker)).or_default() += one.number;
        }
    }
    let number = |wakee: W, waker: W| by.get(&(wakee, waker)).copied().unwrap_or(0);
    let causes_enough = |found: &BTreeSet<(W, W)>, wakee: W, waker: W| {
        let others = found.iter().filter(|(of, partner)| *of == wakee && *partner != waker);
        let by_others: u64 = others.map(|(_, partner)| number(wakee, *partner)).sum();
        let rest = all.get(&wakee).map_or(0, |all| all - by_others);
        rest >= FEWEST && number(wakee, waker) as f64 >= SHARE * rest as f64
    };
    let possible: Vec<(W, W)> = by.keys().copied().filter(|(one, other)| one < other).collect();
    // Both ways round.
    let mut found: BTreeSet<(W, W)> = BTreeSet::new();
    loop {
        let is_new = |(one, other): &&(W, W)| {
            let are_partners = causes_enough(&found, *one, *other) && causes_enough(&found, *other, *one);
            are_partners && !found.contains(&(*one, *other))
        };
        let new: Vec<(W, W)> = possible.iter().filter(is_new).copied().collect();
        if new.is_empty() {
            break;
        }
        found.extend(new.into_iter().flat_map(|(one, other)| [(one, other), (other, one)]));
    }
    let share = |wakee: W, waker: W| number(wakee, waker) as f64 / all[&wakee] as f64;
    let pair = |(one, other): (W, W)| Partnership {
        one,
        other,
        of_one: share(one, other),
        of_other: share(other, one),
    };
    let mut pairs: Vec<_> = found.into_iter().filter(|(one, other)| one < other).map(pair).collect();
    let weaker = |pair: &Partnership<W>| pair.of_one.min(pair.of_other);
    pairs.sort_by(|a, b| weaker(b).total_cmp(&weaker(a)));
    pairs
}

/// Those that belong together, directly or through others; each set has two at least.
pub fn groups<W: Copy + Ord>(pairs: &[Partnership<W>]) -> Vec<BTreeSet<W>> {
    let mut groups: Vec<BTreeSet<W>> = Vec::new();
    for pair in pairs {
        let mut joined = BTreeSet::from([pair.one, pair.other]);
        groups.retain(|group| {
            let apart = group.is_disjoint(&joined);
            if !apart {
                joined.extend(group);
            }
            apart
        });
        groups.push(joined);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(wakee: char, by: impl Into<Option<char>>, number: u64) -> Woken<char> {
        Woken { wakee, waker: by.into(), number }
    }

    fn groups_of(woken: &[Woken<char>]) -> Vec<String> {
        groups(&partnerships(woken)).iter().map(|group| group.iter().collect()).collect()
    }

    #[test]
    fn a_client_and_its_server_are_partners() {
        let both = [woken('c', 's', 990), woken('c', None, 10), woken('s', 'c', 600), woken('s', 's', 400)];
        let pairs = partnerships(&both);
        assert_eq!(pairs, [Partnership { one: 'c', other: 's', of_one: 0.99, of_other: 0.6 }]);
        assert_eq!(groups(&pairs), [BTreeSet::from(['c', 's'])]);
    }

    #[test]
    fn a_workload_that_others_wake_has_no_partner() {
        // A logger wakes nobody; a server whose clients are elsewhere is woken by interrupts that hit anybody.
        assert!(groups_of(&[woken('l', 's', 900), woken('s', None, 900)]).is_empty());
        assert!(groups_of(&[woken('s', 'h', 900), woken('h', 's', 100), woken('h', None, 900)]).is_empty());
        let few = [woken('c', 's', FEWEST - 1), woken('s', 'c', FEWEST)];
        assert!(groups_of(&few).is_empty());
        assert_eq!(groups_of(&[woken('c', 's', FEWEST), few[1]]), ["cs"]);
    }

    #[test]
    fn a_proxy_brings_its_client_and_its_server_together() {
        let chain = [
            woken('c', 'p', 500),
            woken('p', 'c', 500),
            woken('p', 's', 500),
            woken('s', 'p', 500),
            woken('x', 'y', 500),
            woken('y', 'x', 500),
        ];
        let mut found = groups_of(&chain);
        found.sort();
        assert_eq!(found, ["cps", "xy"]);
    }

    #[test]
    fn of_several_clients_the_busiest_hides_none() {
        let two = [woken('s', 'c', 9000), woken('s', 'd', 700), woken('c', 's', 9000), woken('d', 's', 700)];
        assert_eq!(groups_of(&two), ["cds"]);
        let pair = partnerships(&two)[1];
        assert_eq!(
            (pair.one, pair.other, pair.of_other > 0.07, pair.of_other < 0.08),
            ('d', 's', true, true)
        );
        // What wakes the server now and then, as a supervisor does, has a sleep of its own.
        let supervised = [two[0], two[2], woken('s', 'v', 30), woken('v', 's', 30), woken('v', None, 300)];
        assert_eq!(groups_of(&supervised), ["cs"]);
        let rare = [two[0], two[2], woken('s', 'd', FEWEST - 1), woken('d', 's', 700)];
        assert_eq!(groups_of(&rare), ["cs"]);
    }

    #[test]
    fn a_workload_is_not_its_own_partner() {
        assert!(groups_of(&[woken('s', 's', 900)]).is_empty());
    }
}
