//! What somebody else writes while gleanerd holds it: it steps back, keeps their value, and holds the lever again
//! after `gleaner resume`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;

use gleaner_policy::Method;
use gleaner_testing::levers::{LIMIT, limit_is};
use gleaner_testing::skipped;

use crate::common::Gleanerd;
use crate::stage::Stage;

/// A limit that only these tests set.
const THEIRS: &str = "77000";

fn retains(daemon: &Gleanerd) -> bool {
    daemon.status().machine.retention.method != Method::Halt
}

#[test]
fn a_haltpoll_parameter() {
    let Some(stage) = Stage::set("consolidate = false") else { return };
    let daemon = stage.home.start();
    daemon.until_helped("redis");
    if daemon.status().machine.method != Method::Haltpoll {
        return skipped("needs a machine on which haltpoll is the best method");
    }
    fs::write(LIMIT, THEIRS).unwrap();
    daemon.until("it steps back", |daemon| !retains(daemon));
    let status = daemon.status();
    let reason = status.mode_reason.unwrap_or_default();
    assert!(reason.contains(THEIRS) && reason.contains("gleaner resume"), "{reason}");
    assert!(limit_is(THEIRS));
    // Its log comes by another way than its status, and may come later.
    daemon.until_logged("nothing is retained until `gleaner resume`");
    assert_eq!(daemon.logged("nothing is retained until `gleaner resume`"), 1, "{}", daemon.log());

    daemon.client().resume().unwrap();
    daemon.until("it retains again", |daemon| retains(daemon) && !limit_is(THEIRS));
    assert_eq!(daemon.status().mode_reason, None);
    daemon.stop();
    assert!(limit_is(THEIRS), "their value is gone");
    fs::write(LIMIT, stage.machine.limit_before().trim()).unwrap();
    stage.assert_untouched();
}

#[test]
fn the_cpu_set_of_a_group() {
    let Some(stage) = Stage::set("retain = false") else { return };
    let daemon = stage.home.start();
    let active = daemon.until_helped("redis").active.unwrap();
    let file = stage.redis.service.cpus_file();
    let theirs = stage.redis.before.sets[&file].clone();
    assert_ne!(active.to_string(), theirs);
    // The value from before it was changed is theirs, too, now that they have written it.
    daemon.until("its set is in the kernel", |_| stage.redis.service.cpus() != theirs);
    fs::write(&file, &theirs).unwrap();
    daemon.until_logged("its set of vCPUs is theirs until `gleaner resume`");
    assert_eq!(stage.redis.service.cpus(), theirs);
    assert!(daemon.engaged("redis").is_some_and(|redis| redis.active == redis.allowed));

    // One that is smaller stays after `gleaner resume`, too: it was chosen before the daemon held it again.
    let only = active.iter().next().unwrap().to_string();
    fs::write(&file, &only).unwrap();
    daemon.client().resume().unwrap();
    // All load is on one vCPU now: maybe nothing is left to try, and it has no reason to step back.
    let measured = RefCell::new(BTreeSet::new());
    daemon.until("it steps back again, or has measured it several times since", |daemon| {
        measured.borrow_mut().extend(daemon.engaged("redis").map(|redis| redis.load.to_bits()));
        let again = daemon.logged("its set of vCPUs is theirs until `gleaner resume`") == 2;
        again || measured.borrow().len() > 10
    });
    assert_eq!(stage.redis.service.cpus(), only);
    assert!(daemon.engaged("redis").is_none_or(|redis| redis.active == redis.allowed));

    fs::write(&file, &theirs).unwrap();
    daemon.client().resume().unwrap();
    daemon.until("it takes the set up again", |_| stage.redis.service.cpus() != theirs);
    daemon.stop();
    stage.assert_untouched();
}
