//! The files of `/proc` and `/sys` by which workloads are found: a fake tree of them, surveyed twice.

#![no_main]

use gleaner_discover::{Pulse, Surroundings, Survey};
use gleaner_fuzz::Tree;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(tree) = Tree::new(bytes) else { return };
    let root = tree.root();
    let _ = Surroundings::detect(&root).limits();
    let mut pulse = Pulse::new(&root);
    if let Ok(mut survey) = Survey::new(&root) {
        for _ in 0..2 {
            let _ = survey.take(&mut |_| true);
            for candidate in survey.candidates() {
                let _ = (survey.group_dir(candidate), candidate.switches_per_s());
            }
            tree.change();
        }
    }
    if let Ok(pulse) = &mut pulse {
        let _ = pulse.read();
    }
});
