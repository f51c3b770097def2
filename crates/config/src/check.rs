//! What is wrong with the configuration as a whole: keys that contradict each other, wherever they are written.

use crate::config::Config;
use crate::hours::cover_the_week;
use crate::origins::{Listed, Origins};
use crate::problem::{Location, Problem};
use crate::rule::{Rule, Workload};

/// Adds what is wrong to the problems of the single files.
pub(crate) fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    problems.extend(excluded_and_included(config));
    problems.extend(same_rule_twice(config));
    problems.extend(always_quiet(config));
    problems.extend(nothing_to_do(config, origins));
    problems.extend(open_to_others(config, origins));
    // A key that could not be read is no key that is missing.
    let is_unread = |problem: &Problem| problem.key.as_ref().is_some_and(|key| key.starts_with("burstable"));
    if !problems.iter().any(is_unread) {
        problems.extend(credits(config, origins));
    }
}

/// Two places of one file contradict each other by mistake; one of another file may be there to override the first.
fn contradiction(key: &str, at: &Location, other: &Location, message: &str) -> Problem {
    let problem = Problem::of_key(key, at, message);
    if at.file == other.file { problem } else { problem.warning() }
}

fn excluded_and_included(config: &Config) -> Vec<Problem> {
    let problem = |excluded: &Listed<Rule>| {
        let included = config.include.iter().find(|included| included.value == excluded.value)?;
        let (rule, other) = (&excluded.value, &included.at);
        let message = format!("{rule} is included, too, in {other}, and exclude wins: remove one of the two");
        Some(contradiction("exclude", &excluded.at, other, &message))
    };
    config.exclude.iter().filter_map(problem).collect()
}

fn same_rule_twice(config: &Config) -> Vec<Problem> {
    let problem = |(i, workload): (usize, &Listed<Workload>)| {
        let first = config.workload[..i].iter().find(|first| first.rule == workload.rule)?;
        let (rule, other) = (&workload.rule, &first.at);
        let message =
            format!("{rule} has a table in {other}, too, which applies instead of this one: merge the two");
        Some(contradiction("workload", &workload.at, other, &message))
    };
    config.workload.iter().enumerate().filter_map(problem).collect()
}

fn always_quiet(config: &Config) -> Option<Problem> {
    let hours = &config.quiet_hours;
    let (first, last) = hours.first().zip(hours.last())?;
    cover_the_week(hours).then(|| {
        let these = if hours.len() == 1 { "this covers" } else { &format!("the ones up to {} cover", last.at) };
        let message = format!(
            "{these} the whole week, and nothing would ever poll: leave a time for it, or write retain = false"
        );
        Problem::of_key("quiet-hours", &first.at, &message)
    })
}

fn nothing_to_do(config: &Config, origins: &Origins) -> Option<Problem> {
    let (retain, consolidate) = origins.of("retain").zip(origins.of("consolidate"))?;
    let nothing = !config.retain && !config.consolidate && config.workload.is_empty();
    nothing.then(|| {
        let message = format!(
            "with consolidate = false in {consolidate} nothing is left to do: to switch Gleaner off, write systemctl \
             disable --now gleanerd"
        );
        Problem::of_key("retain", retain, &message).warning()
    })
}

fn open_to_others(config: &Config, origins: &Origins) -> Option<Problem> {
    let key = "metrics.listen";
    let listen = config.metrics.listen.filter(|listen| !listen.ip().is_loopback())?;
    let message = format!(
        "whoever reaches {listen} can read the metrics, names of workloads among them; gleanerd.service lets in this \
         machine alone (IPAddressAllow=)"
    );
    Some(Problem::of_key(key, origins.of(key)?, &message).warning())
}

fn credits(config: &Config, origins: &Origins) -> Option<Problem> {
    let burstable = &config.burstable;
    let (key, message) = match (&burstable.credits, burstable.least > 0.0) {
        (Some(_), false) => (
            "burstable.credits",
            "without `least` the credits are read for nothing: say below how many nothing polls, such as least = 20",
        ),
        (None, true) => (
            "burstable.least",
            "without `credits` nobody knows how many are left: name a command that prints them, or file:PATH",
        ),
        _ => return None,
    };
    Some(Problem::of_key(key, origins.of(key)?, message))
}
