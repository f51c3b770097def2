//! Kernel settings that Gleaner changes. Every sample must start with their values from the start of the run,
//! or the default mode would not be the default.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gleaner_kernel::lever::haltpoll::PARAMETERS;
use gleaner_kernel::{KernelError, Root};

use crate::runner::interrupted;

const CPUS: &str = "/sys/devices/system/cpu";

/// How long to wait for settings changed by another process before aborting the run.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Paths and their values.
pub(crate) type KernelSettings = BTreeMap<String, String>;

/// Why a sample would not start like the first one.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// A kernel setting has changed since the run started.
    #[error(
        "{path} is `{is}`, not `{was}` as when the run started; `gleaner restore` undoes what Gleaner left"
    )]
    Touched {
        /// File of the setting.
        path: String,
        /// Value at the start.
        was: String,
        /// Current value.
        is: String,
    },
    /// A kernel file could not be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Reads the haltpoll parameters and each CPU's latency request, as far as this kernel has them.
pub(crate) fn read(root: &Root) -> Result<KernelSettings, KernelError> {
    let names = |dir: &str| if root.exists(dir) { root.list(dir) } else { Ok(Vec::new()) };
    let parameters = names(PARAMETERS)?.into_iter().map(|name| format!("{PARAMETERS}/{name}"));
    let is_cpu = |name: &String| name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok());
    let latencies = names(CPUS)?
        .into_iter()
        .filter(is_cpu)
        .map(|cpu| format!("{CPUS}/{cpu}/power/pm_qos_resume_latency_us"));
    let mut settings = KernelSettings::new();
    for path in parameters.chain(latencies) {
        if let Some(value) = root.read_opt(&path)? {
            settings.insert(path, value);
        }
    }
    Ok(settings)
}

/// Waits a while until every setting has its old value again, in case of another experiment.
///
/// # Errors
/// [`SettingError::Touched`] with the first setting that did not return to its old value.
pub(crate) fn wait_for(root: &Root, then: &KernelSettings) -> Result<(), SettingError> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match check(root, then) {
            Err(SettingError::Touched { .. }) if Instant::now() < deadline && !interrupted() => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// Fails with the first setting that has changed.
fn check(root: &Root, then: &KernelSettings) -> Result<(), SettingError> {
    let now = read(root)?;
    let changed = then.iter().find(|(path, value)| now.get(*path) != Some(*value));
    match changed {
        None => Ok(()),
        Some((path, was)) => Err(SettingError::Touched {
            path: path.clone(),
            was: was.clone(),
            is: now.get(path).cloned().unwrap_or_default(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_setting_that_was_left_changed_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        assert!(read(&root).unwrap().is_empty(), "a kernel without any of them is fine");
        let files = [
            root.path(format!("{PARAMETERS}/guest_halt_poll_ns")),
            root.path(format!("{CPUS}/cpu1/power/pm_qos_resume_latency_us")),
        ];
        for file in &files {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "0\n").unwrap();
        }
        // The real directory also contains other files and directories.
        fs::write(root.path(format!("{CPUS}/online")), "0-1\n").unwrap();
        let settings = read(&root).unwrap();
        assert_eq!(settings.len(), 2);
        check(&root, &settings).unwrap();
        fs::write(&files[1], "n/a\n").unwrap();
        let error = check(&root, &settings).unwrap_err().to_string();
        assert!(error.contains("cpu1/power/pm_qos_resume_latency_us is `n/a`, not `0`"), "{error}");
    }
}
