//! Counts that say what they count.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A count since the scheduler started, of all pCPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Its name, as a key.
    pub name: String,
    /// What is counted.
    pub unit: String,
    /// What it says.
    pub description: String,
    /// How many.
    pub count: u64,
}

/// The counts by name: the answer to `stats`.
pub fn values(stats: &[Stat]) -> Value {
    Value::Object(stats.iter().map(|stat| (stat.name.clone(), stat.count.into())).collect())
}

/// What the counts mean, as sched-ext's tools read it: the answer to `stats_meta`.
pub fn meta(stats: &[Stat]) -> Value {
    let fields: Map<String, Value> = stats
        .iter()
        .map(|stat| {
            let desc = format!("{} ({})", stat.description, stat.unit);
            (stat.name.clone(), json!({"datum": "u64", "desc": desc}))
        })
        .collect();
    json!({"Stats": {
        "name": "Stats",
        "top": "true",
        "desc": "Counts since scx_gleaner started, of all pCPUs",
        "user": {"_om_prefix": "gleaner_scx_"},
        "fields": fields,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sched_ext_tools_find_each_count_and_its_description() {
        let stat = |name: &str, count| Stat {
            name: name.to_owned(),
            unit: "tasks".to_owned(),
            description: format!("About {name}"),
            count,
        };
        let stats = [stat("stolen", 7), stat("pulled", u64::MAX)];
        assert_eq!(values(&stats), json!({"stolen": 7, "pulled": u64::MAX}));
        let meta = meta(&stats);
        let top = meta.as_object().unwrap().values().find(|kind| kind["top"] == "true").unwrap();
        for (name, value) in values(&stats).as_object().unwrap() {
            let field = &top["fields"][name];
            assert_eq!(field["datum"], "u64");
            assert_eq!(field["desc"], format!("About {name} (tasks)"));
            assert!(value.is_u64());
        }
    }
}
