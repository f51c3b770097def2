use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const S: Duration = Duration::from_secs(1);
/// At 30 us a wake-up, these idle periods cost 30 % of a vCPU.
const MANY: f64 = 10_000.0;

fn key(n: usize) -> Key {
    Key::Group(format!("/system.slice/{n}.service").into())
}

fn engagement(most_workloads: usize) -> Engagement {
    Engagement::new(EngageConfig { wake_cost: Duration::from_micros(30), most_workloads })
}

fn seen(key: &Key, load: f64, switches_per_s: f64) -> Seen<'_> {
    Seen { key, load, switches_per_s: Some(switches_per_s), known: false, in_force: false }
}

#[test]
fn an_unknown_program_is_engaged_when_seen_twice_and_a_known_one_at_once() {
    let mut engagement = engagement(8);
    let (new, known) = (key(1), key(2));
    let both =
        [seen(&new, 0.4, 2000.0), Seen { known: true, switches_per_s: None, ..seen(&known, 0.4, 0.0) }];
    let changes = engagement.step(S, MANY, &both);
    assert_eq!(changes, Changes { engage: vec![known.clone()], release: Vec::new(), is_undecided: true });
    let changes = engagement.step(2 * S, MANY, &both);
    assert_eq!((changes.engage.as_slice(), changes.is_undecided), (std::slice::from_ref(&new), false));
    assert!(engagement.is_engaged(&new) && engagement.engaged() == 2);
    assert_eq!(engagement.step(3 * S, MANY, &both), Changes::default());
    let standing = engagement.standing(3 * S, MANY, &both[0]);
    assert_eq!(standing.to_string(), "waking can cost it 6.0 % of a vCPU");
}

#[test]
fn a_known_program_that_idles_is_not_engaged_for_the_idle_periods_of_others() {
    let mut engagement = engagement(8);
    let one = key(1);
    let mut step = |at, load| {
        let seen = Seen { known: true, switches_per_s: None, ..seen(&one, load, 0.0) };
        engagement.step(at, MANY, &[seen]).engage.len()
    };
    assert_eq!(step(S, 0.001), 0);
    assert_eq!(step(2 * S, 0.1), 1);
}

#[test]
fn the_threshold_is_that_of_a_trial() {
    let one = key(1);
    // 30 us a wake-up: 2.5 % of a vCPU are 834 a second, 5 % are 1667.
    for (load, switches, idle_periods, engaged) in [
        (0.1, 840.0, MANY, true),
        (0.1, 820.0, MANY, false),
        (0.5, 840.0, MANY, true),
        (1.0, 1600.0, MANY, false),
        (1.5, 1700.0, MANY, true),
        (1.5, 50_000.0, 100.0, false),
    ] {
        let mut engagement = engagement(8);
        let seen = [seen(&one, load, switches)];
        engagement.step(S, idle_periods, &seen);
        let changes = engagement.step(2 * S, idle_periods, &seen);
        assert_eq!(!changes.engage.is_empty(), engaged, "{load} {switches} {idle_periods}");
    }
}

#[test]
fn one_high_reading_is_not_enough() {
    let mut engagement = engagement(8);
    let one = key(1);
    for at in 0..100 {
        let switches = if at % 2 == 0 { 5000.0 } else { 100.0 };
        let changes = engagement.step(at * S, MANY, &[seen(&one, 0.4, switches)]);
        assert_eq!(changes, Changes { is_undecided: at % 2 == 0, ..Changes::default() });
    }
    assert!(engagement.workloads.is_empty());
}

#[test]
fn nothing_to_win_for_30_s_releases_and_the_next_time_waits_longer() {
    let mut engagement = engagement(8);
    let one = key(1);
    let known = |switches| [Seen { known: true, ..seen(&one, 0.4, switches) }];
    let (mut engaged_at, mut released_at) = (Vec::new(), Vec::new());
    for second in 0..600 {
        // Worth a trial for 10 s of every 50, and next to nothing in between.
        let switches = if second % 50 < 10 { 1000.0 } else { 100.0 };
        let changes = engagement.step(second * S, MANY, &known(switches));
        engaged_at.extend(changes.engage.iter().map(|_| second));
        for (_, why) in &changes.release {
            assert_eq!(*why, Release::NothingToWin { after: 30 * S });
            released_at.push(second);
        }
    }
    assert_eq!(released_at, [39, 139, 239, 389]);
    assert_eq!(engaged_at, [0, 100, 200, 359], "left alone for 30, 60, 120 and 240 s");
    let standing = engagement.standing(600 * S, MANY, &known(1000.0)[0]);
    assert_eq!(standing.to_string(), "nothing that was tried paid, so it is left alone for 29 s more");
    // Another load: nothing is known of it.
    assert_eq!(engagement.step(600 * S, MANY, &known(1990.0)).engage.len(), 0);
    assert_eq!(engagement.step(601 * S, MANY, &known(2010.0)).engage.len(), 1);
}

#[test]
fn what_can_still_win_stays_although_nothing_has_paid_yet() {
    let mut engagement = engagement(1);
    let (one, two) = (key(1), key(2));
    let first = Seen { known: true, ..seen(&one, 0.4, 1000.0) };
    for second in 0..600 {
        // A load at the threshold.
        let switches = if second % 2 == 0 { 1000.0 } else { 500.0 };
        let changes = engagement.step(second * S, MANY, &[Seen { switches_per_s: Some(switches), ..first }]);
        assert_eq!(changes.engage.len(), usize::from(second == 0));
        assert!(changes.release.is_empty());
    }
    // Until another one can gain more.
    let second = Seen { known: true, ..seen(&two, 0.4, 1900.0) };
    assert_eq!(engagement.step(600 * S, MANY, &[first, second]), Changes::default());
    let changes = engagement.step(601 * S, MANY, &[first, Seen { switches_per_s: Some(2100.0), ..second }]);
    assert_eq!(changes.release, [(one.clone(), Release::Displaced)]);
    assert_eq!(changes.engage, std::slice::from_ref(&two));
    engagement.failed(&two, 602 * S);
    assert_eq!(engagement.engaged(), 0);
    assert_eq!(engagement.step(603 * S, MANY, &[first, second]), Changes::default(), "both are left alone");
}

#[test]
fn what_the_daemon_released_is_engaged_again_and_what_it_could_not_engage_is_not_at_once() {
    let mut engagement = engagement(8);
    let one = key(1);
    let loaded = [Seen { known: true, ..seen(&one, 0.4, 5000.0) }];
    assert_eq!(engagement.step(S, MANY, &loaded).engage, std::slice::from_ref(&one));
    assert_eq!(engagement.step(2 * S, MANY, &loaded), Changes::default());
    engagement.released(&one);
    assert!(!engagement.is_engaged(&one));
    assert_eq!(engagement.step(3 * S, MANY, &loaded).engage, std::slice::from_ref(&one));
    engagement.failed(&one, 3 * S);
    assert_eq!(engagement.step(32 * S, MANY, &loaded), Changes::default());
    assert_eq!(engagement.step(34 * S, MANY, &loaded).engage, std::slice::from_ref(&one));
}

#[test]
fn what_was_useful_is_released_when_idle_and_comes_back_at_once() {
    let mut engagement = engagement(8);
    let one = key(1);
    let loaded = [Seen { known: true, in_force: true, ..seen(&one, 0.4, 5000.0) }];
    let idle = [Seen { known: true, in_force: true, ..seen(&one, 0.001, 5.0) }];
    assert_eq!(engagement.step(S, MANY, &loaded).engage.len(), 1);
    for second in 2..200 {
        // Consolidated on one vCPU, it leaves few idle periods to the machine.
        assert_eq!(engagement.step(second * S, 10.0, &loaded), Changes::default());
    }
    let mut second = 200;
    let released = loop {
        let changes = engagement.step(second * S, 10.0, &idle);
        if !changes.release.is_empty() {
            break changes.release;
        }
        second += 1;
    };
    assert_eq!((second, released[0].1), (229, Release::Idle { after: 30 * S }));
    assert_eq!(engagement.step(230 * S, MANY, &loaded).engage.len(), 1);
}

#[test]
fn those_that_lose_most_are_engaged_and_the_others_wait() {
    let mut engagement = engagement(2);
    let keys: Vec<Key> = (0..4).map(key).collect();
    let all: Vec<Seen<'_>> =
        keys.iter().zip([2000.0, 9000.0, 4000.0, 100.0]).map(|(key, n)| seen(key, 0.4, n)).collect();
    engagement.step(S, MANY, &all);
    assert_eq!(engagement.step(2 * S, MANY, &all).engage, [keys[1].clone(), keys[2].clone()]);
    let standing = engagement.standing(2 * S, MANY, &all[0]).to_string();
    let expected = "waking can cost it 6.0 % of a vCPU, but 2 workloads are engaged, the most that the configuration allows";
    assert_eq!(standing, expected);
    let standing = engagement.standing(2 * S, MANY, &all[3]).to_string();
    assert_eq!(standing, "waking costs it 0.3 % of a vCPU, too little to matter");
    // One ends: its place is taken.
    let changes = engagement.step(3 * S, MANY, &[all[0], all[2], all[3]]);
    assert_eq!(changes.release, [(keys[1].clone(), Release::Gone)]);
    assert_eq!(changes.engage, [keys[0].clone()]);
    // The limit is lowered: the one for which something is in force stays.
    engagement.reconfigure(EngageConfig { wake_cost: Duration::from_micros(30), most_workloads: 1 });
    let changes = engagement.step(4 * S, MANY, &[Seen { in_force: true, ..all[0] }, all[2], all[3]]);
    assert_eq!(changes.release, [(keys[2].clone(), Release::TooMany { most: 1 })]);
}

#[test]
fn what_is_idle_or_new_is_said_so() {
    let engagement = engagement(2);
    let one = key(1);
    let standing = |load, switches| engagement.standing(S, MANY, &seen(&one, load, switches)).to_string();
    assert_eq!(standing(0.001, 9.0), "it uses 0.1 % of a vCPU, too little to matter");
    let watched = "waking can cost it 15 % of a vCPU: if that lasts until the next survey, it is engaged";
    assert_eq!(standing(0.4, 5000.0), watched);
}

/// What a workload does at one step: load, switches, known, in force.
type Did = (f64, f64, bool, bool);

/// A step after so many milliseconds: the machine's idle periods, and what each of the workloads that are there does.
fn step() -> impl Strategy<Value = (u64, f64, BTreeMap<usize, Did>)> {
    let one = (0.0..1.5f64, 0.0..20_000.0f64, any::<bool>(), any::<bool>());
    let workloads = proptest::collection::btree_map(0usize..6, one, 0..7);
    (50u64..4000, prop_oneof![Just(0.0), 0.0..20_000.0f64], workloads)
}

proptest! {
    /// Whatever is seen: never more than allowed are engaged, nobody twice, nobody is released who was not engaged or
    /// too soon, a known program does not wait while there is room, and nothing is kept of what is gone.
    #[test]
    fn engagements_are_bounded_and_do_not_flap(
        most in 0usize..5,
        steps in proptest::collection::vec(step(), 1..300),
        pays in any::<bool>(),
    ) {
        let mut engagement = engagement(most);
        let wake_cost = engagement.config.wake_cost;
        let keys: Vec<Key> = (0..6).map(key).collect();
        let mut now = Duration::ZERO;
        let mut engaged: BTreeMap<Key, Duration> = BTreeMap::new();
        let mut in_vain: BTreeMap<Key, Away> = BTreeMap::new();
        for (pause_ms, idle_periods, workloads) in steps {
            now += Duration::from_millis(pause_ms);
            let all: Vec<Seen<'_>> = workloads
                .iter()
                .map(|(n, (load, switches, known, in_force))| Seen {
                    key: &keys[*n],
                    load: *load,
                    switches_per_s: (*switches > 500.0).then_some(*switches),
                    known: *known,
                    in_force: *in_force && pays,
                })
                .collect();
            let changes = engagement.step(now, idle_periods, &all);
            for (key, why) in &changes.release {
                let since = engaged.remove(key).expect("only who is engaged is released");
                let engaged_for = now.checked_sub(since).unwrap();
                prop_assert!(matches!(why, Release::Gone) || engaged_for >= NOTHING_TO_WIN, "{engaged_for:?}");
            }
            for key in &changes.engage {
                prop_assert!(engaged.insert(key.clone(), now).is_none(), "engaged twice");
                let one = all.iter().find(|one| one.key == key).expect("who is there");
                let lost = one.lost(wake_cost, idle_periods);
                prop_assert!(lost >= one.threshold());
                if let Some(away) = in_vain.get(key) {
                    prop_assert!(now >= away.until || lost > OTHER_LOAD * away.most_lost);
                }
            }
            in_vain = engagement
                .workloads
                .iter()
                .filter_map(|(key, workload)| match workload {
                    Workload::Away(away) => Some((key.clone(), *away)),
                    _ => None,
                })
                .collect();
            prop_assert!(engaged.len() <= most && engaged.len() == engagement.engaged());
            for one in &all {
                let worth = one.load >= IDLE_LOAD && one.lost(wake_cost, idle_periods) >= one.threshold();
                if one.known && worth && !in_vain.contains_key(one.key) && engaged.len() < most {
                    prop_assert!(engagement.is_engaged(one.key), "there is room for it");
                }
                prop_assert!(!engagement.standing(now, idle_periods, one).to_string().is_empty());
            }
            let kept = engagement.workloads.keys().filter(|key| !all.iter().any(|one| one.key == *key));
            prop_assert!(kept.into_iter().all(|key| in_vain.get(key).is_some_and(|away| now < away.until)));
        }
    }

    /// A load that goes up and down around the threshold, for which nothing ever pays, is engaged ever more rarely.
    #[test]
    fn engagements_in_vain_become_rare(
        steps in proptest::collection::vec((50u64..3000, 200.0..2000.0f64), 3000),
        busy_s in 1u64..60,
    ) {
        let mut engagement = engagement(1);
        let (one, mut now, mut engaged) = (key(1), Duration::ZERO, 0i32);
        for (pause, switches) in steps {
            now += Duration::from_millis(pause);
            let switches = if now.as_secs() / busy_s % 2 == 0 { switches } else { 10.0 };
            let seen = [Seen { known: true, ..seen(&one, 0.4, switches) }];
            engaged += i32::try_from(engagement.step(now, MANY, &seen).engage.len()).unwrap();
        }
        // Each one lasts 30 s at least, then follow 30, 60, 120 ... s alone. Waking can cost twice as much as ever
        // before only a few times.
        let alone = |n: i32| f64::from(30 * n) + 30.0 * (2f64.powi(n) - 1.0);
        let most = (1..16).find(|n| alone(*n) > now.as_secs_f64()).unwrap() + 4;
        prop_assert!(engaged <= most, "{engaged} in {now:?}");
    }
}
