//! Records on disk, and the VM in them that is asked for.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::limits;
use crate::report::{FORMAT, Report, VmRecord};

/// A record that says nothing about what was asked for. The message has the remedy.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error(
        "cannot read the host's record {}: {source}; on the host, `gleaner-host diagnose --json >HOST.json` makes one",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        r#source: io::Error,
    },
    /// Something else than a record.
    #[error(
        "{} is not the record of a host: {source}; on the host, `gleaner-host diagnose --json >HOST.json` makes one",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        r#source: serde_json::Error,
    },
    /// Written by another version of `gleaner-host`.
    #[error(
        "{} has record format {found}, and this gleaner reads format {FORMAT}: record again, with the gleaner-host of \
         this version",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format that it has.
        found: u64,
    },
    /// No VM ran.
    #[error("the host's record has no VM: record while the VM runs")]
    NoVms,
    /// Several VMs ran, and none was chosen.
    #[error("the host's record has {} VMs: choose one with --vm: {}", known.len(), known.join(", "))]
    Several {
        /// Their names.
        known: Vec<String>,
    },
    /// There is no such VM.
    #[error("the host's record has no VM `{name}`: choose one with --vm: {}", known.join(", "))]
    NoVm {
        /// What was asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// Several VMs have the name.
    #[error(
        "the host's record has {} VMs `{name}`: choose one with --vm by its process: {}",
        pids.len(),
        pids.join(", ")
    )]
    SameName {
        /// The name.
        name: String,
        /// Their processes.
        pids: Vec<String>,
    },
}

impl Report {
    /// Reads the record at `path`, as `gleaner-host diagnose --json` printed it.
    ///
    /// # Errors
    /// The file cannot be read, or is no record of this format.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let bytes = fs::read(path).map_err(|source| RecordError::Read { path: path.to_owned(), source })?;
        Self::parse(&bytes, path)
    }

    /// The record that `bytes`, from `path`, hold.
    ///
    /// # Errors
    /// They are no record of this format.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            format: u64,
        }
        let malformed = |source| RecordError::Malformed { path: path.to_owned(), source };
        // The version first: a record of another one might lack what this one has.
        let Version { format: found } = serde_json::from_slice(bytes).map_err(malformed)?;
        if found != u64::from(FORMAT) {
            return Err(RecordError::Format { path: path.to_owned(), found });
        }
        limits::check(bytes).and_then(|()| serde_json::from_slice(bytes)).map_err(malformed)
    }

    /// Leaves one VM: the one with this name or this process.
    ///
    /// # Errors
    /// There is no such VM, or several.
    pub fn only(mut self, name: &str) -> Result<Self, RecordError> {
        let pid = self.vm(Some(name))?.pid;
        self.vms.retain(|vm| vm.pid == pid);
        Ok(self)
    }

    /// The VM with this name or this process; without either the only one.
    ///
    /// # Errors
    /// There is no such VM, or several.
    pub fn vm(&self, name: Option<&str>) -> Result<&VmRecord, RecordError> {
        let known = || self.vms.iter().map(|vm| vm.name.clone()).collect();
        let Some(name) = name else {
            return match self.vms.as_slice() {
                [] => Err(RecordError::NoVms),
                [one] => Ok(one),
                _ => Err(RecordError::Several { known: known() }),
            };
        };
        let named: Vec<&VmRecord> = self.vms.iter().filter(|vm| vm.name == name).collect();
        match named.as_slice() {
            [one] => Ok(one),
            [] if self.vms.is_empty() => Err(RecordError::NoVms),
            [] => {
                let by_process = self.vms.iter().find(|vm| vm.pid.to_string() == name);
                by_process.ok_or_else(|| RecordError::NoVm { name: name.to_owned(), known: known() })
            }
            several => Err(RecordError::SameName {
                name: name.to_owned(),
                pids: several.iter().map(|vm| vm.pid.to_string()).collect(),
            }),
        }
    }
}

/// Whether `bytes` are a record of a host, of whatever format, rather than a result of `gleaner bench` or nothing known.
pub fn is_record(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Record {
        #[serde(rename = "format")]
        _format: u64,
        #[serde(rename = "vms")]
        _vms: IgnoredAny,
    }
    serde_json::from_slice::<Record>(bytes).is_ok()
}

impl VmRecord {
    /// Number of vCPUs, those without an event included.
    pub fn vcpu_count(&self) -> usize {
        // A vCPU whose thread was replaced meanwhile is there twice.
        self.vcpus
            .iter()
            .map(|vcpu| vcpu.vcpu)
            .chain(self.silent_vcpus.iter().copied())
            .collect::<BTreeSet<_>>()
            .len()
    }
}

#[cfg(test)]
mod tests {
    use gleaner_testing::host::RECORD;
    use gleaner_testing::tree::tree;

    use gleaner_proto::histogram::Histogram;

    use super::*;
    use crate::attribution::{ReasonTimes, Times};
    use crate::{Latencies, Reason};

    fn record() -> Report {
        read(RECORD).unwrap()
    }

    fn read(text: &str) -> Result<Report, RecordError> {
        let dir = tree(&[("host.json", text)]);
        Report::read(&dir.path().join("host.json"))
    }

    #[test]
    fn a_record_comes_back_as_it_was_printed() {
        let record = record();
        assert_eq!((record.vms.len(), record.span_ns), (2, 20_000_000_000));
        let printed = serde_json::to_string(&record).unwrap();
        let (as_is, again): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(RECORD).unwrap(), serde_json::from_str(&printed).unwrap());
        assert_eq!(as_is, again);
    }

    /// As versions wrote it that did not measure them.
    #[test]
    fn a_record_without_later_latencies_is_read() {
        let mut old: serde_json::Value = serde_json::from_str(RECORD).unwrap();
        for vcpu in
            old["vms"].as_array_mut().unwrap().iter_mut().flat_map(|vm| vm["vcpus"].as_array_mut().unwrap())
        {
            let latencies = vcpu["latencies"].as_object_mut().unwrap();
            for later in ["timer", "device", "pcpu_halted", "pcpu_reschedule", "pcpu_call"] {
                assert!(latencies.remove(later).is_some());
            }
        }
        let vms = read(&old.to_string()).unwrap().vms;
        let count = |of: fn(&Latencies) -> &Histogram| vms.iter().map(|vm| vm.latency(of).count).sum::<u64>();
        assert_eq!((count(|of| &of.timer), count(|of| &of.device)), (0, 0));
        assert_eq!(
            count(|of| &of.pcpu_halted) + count(|of| &of.pcpu_reschedule) + count(|of| &of.pcpu_call),
            0
        );
        assert!(count(|of| &of.woken) > 0);
    }

    /// The fixture is what `gleaner-host` could have printed.
    #[test]
    fn the_parts_of_the_record_add_up() {
        for vm in record().vms {
            let mut times = Times::default();
            let mut hlt = ReasonTimes::default();
            for vcpu in &vm.vcpus {
                assert_eq!(Times::of(0, vcpu.times.guest_ns, &vcpu.reasons), vcpu.times);
                times.add(&vcpu.times);
                hlt.add(&vcpu.reasons[&Reason::Hlt]);
            }
            assert_eq!((times, hlt), (vm.times, vm.reasons[&Reason::Hlt]), "{}", vm.name);
            assert_eq!(vm.groups.values().sum::<u64>(), vm.times.hypervisor_ns, "{}", vm.name);
            assert_eq!(times.total_ns(), 20_000_000_000 * vm.vcpus.len() as u64, "{}", vm.name);
        }
    }

    #[test]
    fn the_only_vm_needs_no_name_and_several_do() {
        let mut record = record();
        let error = record.vm(None).unwrap_err().to_string();
        assert_eq!(error, "the host's record has 2 VMs: choose one with --vm: ping, quiet");
        assert_eq!(record.vm(Some("ping")).unwrap().pid, 1520);
        assert_eq!(record.vm(Some("1733")).unwrap().name, "quiet");
        assert_eq!(record.vm(Some("quiet")).unwrap().vcpu_count(), 2);
        let error = record.vm(Some("pong")).unwrap_err().to_string();
        assert_eq!(error, "the host's record has no VM `pong`: choose one with --vm: ping, quiet");
        record.vms[1].name = "ping".to_owned();
        let error = record.vm(Some("ping")).unwrap_err().to_string();
        assert!(error.ends_with("2 VMs `ping`: choose one with --vm by its process: 1520, 1733"), "{error}");
        assert_eq!(record.vm(Some("1733")).unwrap().pid, 1733);
        record.vms.truncate(1);
        assert_eq!(record.vm(None).unwrap().name, "ping");
        record.vms.clear();
        for name in [None, Some("ping")] {
            assert!(matches!(record.vm(name), Err(RecordError::NoVms)));
        }
    }

    #[test]
    fn one_vm_can_be_left_alone() {
        let left = record().only("quiet").unwrap();
        assert_eq!(left.vms.iter().map(|vm| vm.pid).collect::<Vec<_>>(), [1733]);
        assert_eq!(left.pcpus.len(), 4, "the host's own numbers stay");
        assert!(matches!(record().only("pong"), Err(RecordError::NoVm { .. })));
    }

    #[test]
    fn a_record_of_any_format_differs_from_a_result() {
        assert!(is_record(RECORD.as_bytes()) && is_record(br#"{"format": 7, "vms": {}}"#));
        assert!(!is_record(br#"{"schema": 1, "rows": []}"#) && !is_record(b"nonsense"));
    }

    #[test]
    fn what_is_no_record_is_named_with_the_remedy() {
        let error = read(&RECORD.replacen("\"format\": 1", "\"format\": 9", 1)).unwrap_err().to_string();
        assert!(error.contains("host.json has record format 9, and this gleaner reads format 1"), "{error}");
        for text in ["", "{}", "[]", "{\"format\": 1}", "{\"schema\": 1, \"rows\": []}"] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("host.json is not the record of a host"), "{text}: {error}");
            assert!(error.contains("gleaner-host diagnose --json"), "{text}: {error}");
        }
        // Sums of such numbers would overflow.
        let error = read(&RECORD.replacen("20000000000", "18446744073709551615", 1)).unwrap_err().to_string();
        assert!(error.contains("18446744073709551615 is more than a host can record"), "{error}");
        let error = Report::read(Path::new("/nowhere/host.json")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the host's record /nowhere/host.json"), "{error}");
    }
}
