//! `gleaner sim list`.

use gleaner_sim::library::{MICRO, SUITES};

pub(super) fn run() {
    println!("Small programs:");
    for entry in MICRO {
        println!("  {:<18}{}\n  {:<18}source: {}", entry.name, entry.about, "", entry.source);
    }
    for (suite, title) in [("parsec", "PARSEC 3.0"), ("splash2x", "SPLASH-2x")] {
        println!("{title}:");
        for program in SUITES.iter().filter(|p| p.suite == suite) {
            println!("  {:<18}{}", program.name, program.source);
        }
    }
    println!("Cost tables: {}", gleaner_sim::COST_TABLES.join(", "));
}
