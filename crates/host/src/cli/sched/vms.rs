//! Rules of VMs by their names, and options as `scx_gleaner` needs them.

use std::ffi::{OsStr, OsString};
use std::str::FromStr;

use gleaner_host::HostError;
use gleaner_host::discover::Vm;
use gleaner_scx_control::{Rules, VmChange};

use crate::cli::find;

/// `NAME=RULES`, or `NAME=default`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedRules {
    name: String,
    rules: Option<Rules>,
}

impl FromStr for NamedRules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A name may have the sign, rules never do.
        let (name, rules) = text.rsplit_once('=').ok_or("NAME=RULES is expected, or NAME=default")?;
        let rules = if rules == "default" { None } else { Some(rules.parse()?) };
        Ok(Self { name: name.to_owned(), rules })
    }
}

impl NamedRules {
    /// The same by the VM's process.
    pub(super) fn resolve(&self, vms: &[Vm]) -> Result<VmChange, HostError> {
        Ok(VmChange { pid: find(vms, &self.name)?, rules: self.rules })
    }
}

/// Options of `scx_gleaner` as it needs them: in `--vm NAME=RULES` the VM's process for its name, and the full path of a
/// record, since it starts in another directory. What has another form stays: it is for `scx_gleaner` to refuse.
pub(super) fn resolved(options: &[OsString], vms: &[Vm]) -> anyhow::Result<Vec<OsString>> {
    let options = with_values(options, "--vm", |value| Ok(of_value(value, vms)?))?;
    with_values(&options, "--record", |path| Ok(std::path::absolute(path)?.into_os_string()))
}

/// These options, with the value of each that is called `name` replaced.
fn with_values(
    options: &[OsString],
    name: &str,
    replaced: impl Fn(&OsStr) -> anyhow::Result<OsString>,
) -> anyhow::Result<Vec<OsString>> {
    let prefix = format!("{name}=");
    let mut value_follows = false;
    let of = |option: &OsString| {
        let inline = option.to_str().and_then(|text| text.strip_prefix(&prefix));
        let new = match (value_follows, inline) {
            (true, _) => replaced(option)?,
            (false, Some(value)) => {
                let mut joined = OsString::from(&prefix);
                joined.push(replaced(OsStr::new(value))?);
                joined
            }
            (false, None) => option.clone(),
        };
        value_follows = !value_follows && option == name;
        Ok(new)
    };
    options.iter().map(of).collect()
}

fn of_value(value: &OsStr, vms: &[Vm]) -> Result<OsString, HostError> {
    match value.to_str().and_then(|text| text.rsplit_once('=')) {
        // A process can have rules before it is a VM.
        Some((name, rules)) if name.parse::<u32>().is_err() => {
            Ok(OsString::from(format!("{}={rules}", find(vms, name)?)))
        }
        _ => Ok(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::vm;

    fn vms() -> Vec<Vm> {
        vec![vm(17, "web-1"), vm(18, "a=b")]
    }

    #[test]
    fn names_become_processes() {
        let change = |text: &str| text.parse::<NamedRules>().unwrap().resolve(&vms());
        assert_eq!(change("web-1=off").unwrap(), VmChange { pid: 17, rules: Some(Rules::OFF) });
        assert_eq!(change("17=default").unwrap(), VmChange { pid: 17, rules: None });
        assert_eq!(change("a=b=resched-dp,tlb-co").unwrap(), VmChange { pid: 18, rules: Some(Rules::PAPER) });
        let unknown = change("db=off").unwrap_err().to_string();
        assert_eq!(unknown, "no VM is called `db`; there are: web-1, a=b");
    }

    #[test]
    fn a_record_is_where_the_user_is() {
        let given =
            ["--record", "a.jsonl", "--record=b.jsonl", "--record", "/c"].map(OsString::from).to_vec();
        let here = std::env::current_dir().unwrap();
        let expected = [
            OsString::from("--record"),
            here.join("a.jsonl").into_os_string(),
            OsString::from(format!("--record={}", here.join("b.jsonl").display())),
            OsString::from("--record"),
            OsString::from("/c"),
        ];
        assert_eq!(resolved(&given, &vms()).unwrap(), expected);
    }

    #[test]
    fn options_are_passed_on_with_processes_for_names() {
        let resolved = |options: &[&str]| {
            let options: Vec<OsString> = options.iter().map(OsString::from).collect();
            resolved(&options, &vms()).map_err(|error| error.to_string())
        };
        let passed = resolved(&["--rules", "off", "--vm", "web-1=tlb-co", "--vm=a=b=off", "--vm", "99=off"]);
        assert_eq!(passed.unwrap(), ["--rules", "off", "--vm", "17=tlb-co", "--vm=18=off", "--vm", "99=off"]);
        assert_eq!(resolved(&["--vm", "--vm"]).unwrap(), ["--vm", "--vm"]);
        assert!(resolved(&["--vm", "db=off"]).unwrap_err().contains("`db`"));
    }
}
