//! Rules of VMs by their names.

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

/// Options of `scx_gleaner` in which `--vm NAME=RULES` has the VM's process for its name. What has another form stays: it
/// is for `scx_gleaner` to refuse.
pub(super) fn by_process(options: &[OsString], vms: &[Vm]) -> Result<Vec<OsString>, HostError> {
    let mut resolved = Vec::with_capacity(options.len());
    let mut value_follows = false;
    for option in options {
        let inline = option.to_str().and_then(|text| text.strip_prefix("--vm="));
        resolved.push(match (value_follows, inline) {
            (true, _) => of_value(option, vms)?,
            (false, Some(value)) => {
                let mut joined = OsString::from("--vm=");
                joined.push(of_value(OsStr::new(value), vms)?);
                joined
            }
            (false, None) => option.clone(),
        });
        value_follows = !value_follows && option == "--vm";
    }
    Ok(resolved)
}

/// The same options, with the full path of a record: `scx_gleaner` starts in another directory.
pub(super) fn from_root(options: Vec<OsString>) -> std::io::Result<Vec<OsString>> {
    let mut value_follows = false;
    let full = |option: OsString| {
        let inline = option.to_str().and_then(|text| text.strip_prefix("--record="));
        let path = match inline {
            Some(path) => OsString::from(format!("--record={}", std::path::absolute(path)?.display())),
            None if value_follows => std::path::absolute(&option)?.into_os_string(),
            None => option.clone(),
        };
        value_follows = !value_follows && option == "--record";
        Ok(path)
    };
    options.into_iter().map(full).collect()
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
        assert_eq!(from_root(given).unwrap(), expected);
    }

    #[test]
    fn options_are_passed_on_with_processes_for_names() {
        let by_process = |options: &[&str]| {
            let options: Vec<OsString> = options.iter().map(OsString::from).collect();
            by_process(&options, &vms()).map_err(|error| error.to_string())
        };
        let passed =
            by_process(&["--rules", "off", "--vm", "web-1=tlb-co", "--vm=a=b=off", "--vm", "99=off"]);
        assert_eq!(passed.unwrap(), ["--rules", "off", "--vm", "17=tlb-co", "--vm=18=off", "--vm", "99=off"]);
        assert_eq!(by_process(&["--vm", "--vm"]).unwrap(), ["--vm", "--vm"]);
        assert!(by_process(&["--vm", "db=off"]).unwrap_err().contains("`db`"));
    }
}
