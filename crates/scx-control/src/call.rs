//! Requests and answers, a line of JSON each.

use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::Rules;
use crate::time::check_length;

/// A request as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What is asked.
    pub req: String,
    /// More about it.
    #[serde(default)]
    pub args: Map<String, Value>,
}

/// A request that is understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// The counts by name.
    Stats,
    /// What the counts mean.
    StatsMeta,
    /// Everything that is in force.
    Status,
    /// Change something, and say what was changed.
    Set(Change),
}

/// What to change at run time. What is missing stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    /// Rules of VMs that have none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Rules>,
    /// For how long the sender of a reschedule interrupt is not preempted, in ns, of all VMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_delay_ns: Option<u64>,
    /// For how long an urgent vCPU runs before the next one, in ns, of all VMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urgent_slice_ns: Option<u64>,
    /// Time on a pCPU by which an urgent vCPU may be ahead of others, in ns, of all VMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowance_ns: Option<u64>,
    /// Rules of single VMs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<VmChange>,
}

/// What to change for one VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmChange {
    /// Process of its VMM.
    pub pid: u32,
    /// Its own rules; `None`: the default ones hold again.
    pub rules: Option<Rules>,
}

impl Call {
    /// Parses a line of a client.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(line: &str) -> Result<Self, String> {
        let request: Request =
            serde_json::from_str(line).map_err(|error| format!("not a request: {error}"))?;
        match request.req.as_str() {
            "stats" => match request.args.get("target").and_then(Value::as_str) {
                None | Some("top") => Ok(Self::Stats),
                Some(other) => Err(format!("there are no stats `{other}`: use `top`")),
            },
            "stats_meta" => Ok(Self::StatsMeta),
            "status" => Ok(Self::Status),
            "set" => {
                let change: Change = serde_json::from_value(Value::Object(request.args))
                    .map_err(|error| format!("cannot set that: {error}"))?;
                for ns in [change.preemption_delay_ns, change.urgent_slice_ns, change.allowance_ns]
                    .into_iter()
                    .flatten()
                {
                    check_length(ns).map_err(|error| format!("cannot set that: {error}"))?;
                }
                Ok(Self::Set(change))
            }
            other => Err(format!("`{other}` is no request: use stats, stats_meta, status or set")),
        }
    }

    /// What a client sends.
    pub fn request(&self) -> Request {
        let (req, args) = match self {
            Self::Stats => ("stats", Value::Null),
            Self::StatsMeta => ("stats_meta", Value::Null),
            Self::Status => ("status", Value::Null),
            // A type of our own with texts as keys: this cannot fail.
            Self::Set(change) => ("set", serde_json::to_value(change).unwrap_or_default()),
        };
        let args = match args {
            Value::Object(args) => args,
            _ => Map::new(),
        };
        Request { req: req.to_owned(), args }
    }
}

/// The line with an answer.
pub(crate) fn reply(answer: Result<Value, String>) -> String {
    let (errno, resp) = match answer {
        Ok(value) => (0, value),
        Err(sentence) => (Errno::EINVAL as i32, Value::String(sentence)),
    };
    format!("{}\n", json!({"errno": errno, "args": {"resp": resp}}))
}

/// The answer in a line; the inner error is the scheduler's refusal.
///
/// # Errors
/// It is no answer.
pub(crate) fn parse_reply(line: &str) -> Result<Result<Value, String>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Reply {
        errno: i32,
        args: Args,
    }
    #[derive(Deserialize)]
    struct Args {
        resp: Value,
    }
    let reply: Reply = serde_json::from_str(line)?;
    Ok(match (reply.errno, reply.args.resp) {
        (0, value) => Ok(value),
        (_, Value::String(sentence)) => Err(sentence),
        (errno, other) => Err(format!("error {errno}: {other}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_sent() {
        let change = Change {
            rules: Some(Rules::OFF),
            preemption_delay_ns: Some(200_000),
            urgent_slice_ns: Some(300_000),
            vms: vec![VmChange { pid: 42, rules: Some(Rules::PAPER) }, VmChange { pid: 43, rules: None }],
            ..Change::default()
        };
        for call in [Call::Stats, Call::StatsMeta, Call::Status, Call::Set(change)] {
            let line = serde_json::to_string(&call.request()).unwrap();
            assert_eq!(Call::parse(&line), Ok(call), "{line}");
        }
        // As sched-ext's clients write them.
        assert_eq!(Call::parse(r#"{"req":"stats","args":{"target":"top"}}"#), Ok(Call::Stats));
        assert_eq!(Call::parse(r#"{"req":"stats_meta"}"#), Ok(Call::StatsMeta));
    }

    #[test]
    fn what_is_wrong_with_a_request_is_named() {
        for (line, named) in [
            ("", "not a request"),
            ("{}", "req"),
            (r#"{"req":"halt"}"#, "`halt` is no request"),
            (r#"{"req":"stats","args":{"target":"vms"}}"#, "`vms`"),
            (r#"{"req":"set","args":{"rule":"off"}}"#, "unknown field `rule`"),
            (r#"{"req":"set","args":{"rules":"all"}}"#, "`all` is no rule"),
            (r#"{"req":"set","args":{"vms":[{"pid":-1,"rules":null}]}}"#, "u32"),
            (r#"{"req":"set","args":{"allowance_ns":1000000001}}"#, "1000ms"),
        ] {
            let error = Call::parse(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn answers_and_refusals_arrive() {
        let answer = Ok(json!({"stolen": 7}));
        assert_eq!(parse_reply(&reply(answer.clone())).unwrap(), answer);
        let refusal = Err("no\nsuch process".to_owned());
        let line = reply(refusal.clone());
        assert_eq!((line.matches('\n').count(), parse_reply(&line).unwrap()), (1, refusal));
        assert!(parse_reply("{}").is_err());
    }
}
