//! The configuration, and what it means for a workload and a time.

use std::net::SocketAddr;

use gleaner_policy::Objective;
use jiff::civil::DateTime;

use crate::hours::QuietHours;
use crate::keys::{Table as _, keys};
use crate::origins::Listed;
use crate::problem::Location;
use crate::rule::{Rule, Subject, Workload};
use crate::value::{boolean, credits, group, hours, listen, objective, objectives, share, source, workloads};

keys! {
    /// The configuration of gleanerd. What is not given has its default.
    #[schemars(title = "gleaner.toml")]
    pub struct Config {
        /// How much polling a wake-up is worth: `latency` (much), `balanced`, or `efficiency` (little).
        #[serde(serialize_with = "crate::value::as_text")]
        #[schemars(schema_with = "objectives")]
        pub objective: Objective = Objective::Balanced, scalar(objective);
        /// The largest share of the machine's vCPU time that polling may take, from 0 to 1.
        #[schemars(range(min = 0, max = 1))]
        pub polling_share: f64 = 1.0, scalar(share);
        /// Whether idle vCPUs may poll before they halt.
        pub retain: bool = true, scalar(boolean);
        /// Whether workloads may be moved to fewer vCPUs.
        pub consolidate: bool = true, scalar(boolean);
        /// Whether what earlier runs showed of a program is used, and kept for later ones.
        pub memory: bool = true, scalar(boolean);
        /// Whether BPF programs may be loaded; without them some signals are missing, others slower.
        pub bpf: bool = true, scalar(boolean);
        /// How many workloads can be engaged at once, from 1 to 256.
        #[schemars(range(min = 1, max = 256))]
        pub most_workloads: u32 = 32, scalar(workloads);
        /// Rules for the workloads that may be engaged; an empty list means all of them.
        #[schemars(with = "Vec<Rule>")]
        pub include: Vec<Listed<Rule>> = Vec::new(), rules;
        /// Rules for the workloads that are never engaged, even if `include` has them.
        #[schemars(with = "Vec<Rule>")]
        pub exclude: Vec<Listed<Rule>> = Vec::new(), rules;
        /// Times of the week in which nothing polls, in local time: `22:00-06:00`, `Mon-Fri 22:00-06:00`.
        #[schemars(with = "Vec<String>")]
        pub quiet_hours: Vec<Listed<QuietHours>> = Vec::new(), texts(hours);
        /// What is different for some workloads; the first table whose rule matches applies.
        #[schemars(with = "Vec<Workload>")]
        pub workload: Vec<Listed<Workload>> = Vec::new(), rules;
        /// CPU credits of burstable instances.
        pub burstable: Burstable = Burstable::default(), table;
        /// Metrics over HTTP.
        pub metrics: Metrics = Metrics::default(), table;
        /// The control socket.
        pub control: Control = Control::default(), table;
    }
}

keys! {
    /// CPU credits of burstable instances.
    pub struct Burstable {
        /// Where the remaining CPU credits can be read: a command that prints the number, or `file:PATH`; empty is none.
        #[serde(serialize_with = "crate::value::as_text_or_empty")]
        #[schemars(with = "String")]
        pub credits: Option<String> = None, scalar(source);
        /// Nothing polls while fewer CPU credits than this are left.
        #[schemars(range(min = 0))]
        pub least: f64 = 0.0, scalar(credits);
    }
}

keys! {
    /// Metrics over HTTP.
    pub struct Metrics {
        /// IP address and port at which they are served, such as `127.0.0.1:9839`; empty is nowhere.
        #[serde(serialize_with = "crate::value::as_text_or_empty")]
        #[schemars(with = "String")]
        pub listen: Option<SocketAddr> = None, scalar(listen);
    }
}

keys! {
    /// The control socket.
    pub struct Control {
        /// The user group that may read by it: `gleaner status`, `why`, `top`.
        pub group: String = "gleaner".to_owned(), scalar(group);
    }
}

/// Where a key belongs, if there is one of this name somewhere.
pub(crate) fn home(name: &str) -> Option<&'static str> {
    let tables = [
        ("above the first [table] of the file", Config::names()),
        ("below [[workload]]", Workload::names()),
        ("below [burstable]", Burstable::names()),
        ("below [metrics]", Metrics::names()),
        ("below [control]", Control::names()),
    ];
    let has = |names: &[String]| names.iter().any(|known| known == name);
    tables.into_iter().find(|(_, names)| has(names)).map(|(place, _)| place)
}

/// A rule of the configuration that a workload is subject to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRef {
    /// The key that has it: `include`, `exclude` or `workload`.
    pub list: &'static str,
    /// As it is written, `{ unit = "redis.service" }`.
    pub rule: String,
    /// Where.
    pub at: Location,
}

impl std::fmt::Display for RuleRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ({})", self.list, self.rule, self.at)
    }
}

/// What the configuration says of one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Whether it may be engaged.
    pub engage: bool,
    /// The rule that decides: the one that excludes it, else that of its `[[workload]]`, else the one that includes it.
    /// Without one, `engage` says whether there is an `include` that lacks it.
    pub rule: Option<RuleRef>,
    /// How much polling a wake-up is worth.
    pub objective: Objective,
    /// Whether it may be moved to fewer vCPUs.
    pub consolidate: bool,
    /// Whether idle vCPUs may poll for it.
    pub retain: bool,
    /// Its own progress, as `gleaner run --progress` takes it.
    pub progress: Option<String>,
}

/// When nothing may poll for the lack of CPU credits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CreditGuard<'c> {
    /// Where the credits can be read, as `gleaner run --progress` takes it.
    pub source: &'c str,
    /// The number of credits below which nothing polls.
    pub least: f64,
}

impl Config {
    /// What holds for a workload.
    pub fn terms(&self, subject: &Subject<'_>) -> Terms {
        let named = |list: &'static str, rule: &Listed<Rule>| RuleRef {
            list,
            rule: rule.to_string(),
            at: rule.at.clone(),
        };
        let excluded = self.exclude.iter().find(|rule| rule.matches(subject)).map(|r| named("exclude", r));
        // A workload is asked about again once its executable is known.
        let included = self.include.iter().find(|rule| rule.can_match(subject)).map(|r| named("include", r));
        let workload = self.workload.iter().find(|workload| workload.rule.matches(subject));
        let engage = excluded.is_none() && (self.include.is_empty() || included.is_some());
        let own = workload.map(|w| RuleRef { list: "workload", rule: w.rule.to_string(), at: w.at.clone() });
        Terms {
            engage,
            rule: if engage { own.or(included) } else { excluded },
            objective: workload.and_then(|w| w.objective).unwrap_or(self.objective),
            consolidate: workload.and_then(|w| w.consolidate).unwrap_or(self.consolidate),
            retain: workload.and_then(|w| w.retain).unwrap_or(self.retain),
            progress: workload.and_then(|w| w.progress.clone()),
        }
    }

    /// The quiet hours that hold at this local time.
    pub fn quiet_at(&self, local: DateTime) -> Option<&Listed<QuietHours>> {
        self.quiet_hours.iter().find(|hours| hours.hold_at(local))
    }

    /// When nothing may poll for the lack of CPU credits; `None` if that was not asked for.
    pub fn credit_guard(&self) -> Option<CreditGuard<'_>> {
        let source = self.burstable.credits.as_deref()?;
        Some(CreditGuard { source, least: self.burstable.least })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("/x.toml"), text).unwrap().config
    }

    fn redis() -> Subject<'static> {
        Subject {
            unit: Some("redis-server.service"),
            group: Path::new("/system.slice/redis-server.service"),
            executable: Some(Path::new("/usr/bin/redis-check-rdb")),
        }
    }

    fn pod() -> Subject<'static> {
        Subject { unit: None, group: Path::new("/kubepods/burstable/pod1/c"), executable: None }
    }

    #[test]
    fn without_rules_everything_may_be_engaged_on_the_same_terms() {
        let terms = Config::default().terms(&redis());
        assert!(terms.engage && terms.retain && terms.consolidate);
        assert_eq!((terms.rule, terms.objective, terms.progress), (None, Objective::Balanced, None));
    }

    #[test]
    fn exclude_wins_over_include_and_include_over_nothing() {
        let config = config(
            "include = [{ unit = \"redis*.service\" }]\nexclude = [{ executable = \"/usr/bin/*-rdb\" }, { group = \"/**\" }]",
        );
        let rule = |terms: Terms| (terms.engage, terms.rule.map(|rule| rule.to_string()));
        let excluded = "exclude { executable = \"/usr/bin/*-rdb\" } (/x.toml:2)";
        assert_eq!(rule(config.terms(&redis())), (false, Some(excluded.to_owned())));
        let included = Config { exclude: Vec::new(), ..config };
        let by = "include { unit = \"redis*.service\" } (/x.toml:1)";
        assert_eq!(rule(included.terms(&redis())), (true, Some(by.to_owned())));
        assert_eq!(rule(included.terms(&pod())), (false, None), "it is not among them");
    }

    #[test]
    fn what_only_an_executable_includes_is_looked_into_until_that_is_known() {
        let config =
            config("include = [{ executable = \"/usr/sbin/mariadbd\", group = \"/system.slice/**\" }]");
        let of = |executable: Option<&'static str>, group| {
            config.terms(&Subject {
                unit: None,
                group: Path::new(group),
                executable: executable.map(Path::new),
            })
        };
        assert!(of(None, "/system.slice/mariadb.service").engage);
        assert!(of(Some("/usr/sbin/mariadbd"), "/system.slice/mariadb.service").engage);
        assert!(!of(Some("/usr/bin/redis-server"), "/system.slice/redis.service").engage);
        assert!(!of(None, "/user.slice/x").engage, "no executable can change that");
    }

    #[test]
    fn every_key_of_a_rule_must_match() {
        let excluded =
            |rule: &str, subject: &Subject<'_>| !config(&format!("exclude = [{rule}]")).terms(subject).engage;
        for (rule, hits_redis, hits_pod) in [
            ("{ unit = \"*\" }", true, false),
            ("{ group = \"/system.slice/*\" }", true, false),
            ("{ group = \"/kubepods/**\" }", false, true),
            ("{ executable = \"**\" }", true, false),
            ("{ unit = \"redis*\", group = \"/kubepods/**\" }", false, false),
            ("{ unit = \"redis*\", group = \"/**\", executable = \"/usr/bin/*\" }", true, false),
        ] {
            assert_eq!((excluded(rule, &redis()), excluded(rule, &pod())), (hits_redis, hits_pod), "{rule}");
        }
    }

    #[test]
    fn the_first_workload_that_matches_overrides_what_it_names() {
        let config = config(
            "retain = false\nobjective = \"efficiency\"\n[[workload]]\nunit = \"redis*\"\nobjective = \"latency\"\n\
             progress = \"file:/run/count\"\n[[workload]]\ngroup = \"/**\"\nretain = true\nconsolidate = false\n",
        );
        let terms = config.terms(&redis());
        assert_eq!((terms.objective, terms.retain, terms.consolidate), (Objective::Latency, false, true));
        assert_eq!(terms.progress.as_deref(), Some("file:/run/count"));
        assert_eq!(terms.rule.unwrap().to_string(), "workload { unit = \"redis*\" } (/x.toml:3)");
        let terms = config.terms(&pod());
        assert_eq!((terms.objective, terms.retain, terms.consolidate), (Objective::Efficiency, true, false));
    }

    #[test]
    fn nothing_polls_in_quiet_hours() {
        let config = config("quiet-hours = [\"Sat,Sun 00:00-24:00\", \"22:00-06:00\"]");
        let at = |day, hour| jiff::civil::date(2026, 11, day).at(hour, 0, 0, 0);
        let polls_at = |time| config.quiet_at(time).is_none();
        assert!(polls_at(at(27, 12)) && !polls_at(at(27, 22)) && !polls_at(at(28, 12)));
        assert_eq!(config.quiet_at(at(28, 12)).unwrap().to_string(), "Sat,Sun 00:00-24:00");
    }

    #[test]
    fn credits_are_guarded_if_they_can_be_read() {
        let config = config("[burstable]\ncredits = \"cloud credits\"\nleast = 20\n");
        assert_eq!(config.credit_guard(), Some(CreditGuard { source: "cloud credits", least: 20.0 }));
        assert_eq!(Config::default().credit_guard(), None);
    }
}
