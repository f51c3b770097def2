//! User-defined modes: shell commands before and after a sample.

use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use gleaner_print::say;

use super::ExperimentError;
use crate::mode::UserMode;
use crate::servers::ServersError;
use crate::servers::log::tail;

/// A user's setting, undone when dropped.
pub(super) struct AppliedSetting<'m> {
    mode: &'m UserMode,
    done: bool,
}

impl<'m> AppliedSetting<'m> {
    /// Runs the commands that apply the setting.
    pub(super) fn set(mode: &'m UserMode) -> Result<Self, ExperimentError> {
        // From here on it is undone, even if only partly applied.
        let setting = Self { mode, done: false };
        mode.set.iter().try_for_each(|line| shell(line))?;
        Ok(setting)
    }

    /// Runs the commands that undo the setting.
    pub(super) fn unset(mut self) -> Result<(), ExperimentError> {
        self.undo()
    }

    /// Runs every command, even if others fail.
    fn undo(&mut self) -> Result<(), ExperimentError> {
        self.done = true;
        let results: Vec<_> = self.mode.unset.iter().map(|line| shell(line)).collect();
        results.into_iter().collect()
    }
}

impl Drop for AppliedSetting<'_> {
    fn drop(&mut self) {
        if !self.done
            && let Err(error) = self.undo()
        {
            say!("gleaner: could not be put back: {error}");
        }
    }
}

/// Runs a user's command in its own process group, which Ctrl-C on the terminal does not reach.
fn shell(line: &str) -> Result<(), ExperimentError> {
    // A file rather than a pipe: processes left behind by the command would keep a pipe open.
    let mut said = tempfile::tempfile().map_err(ServersError::system("make a temporary file"))?;
    let errors = said.try_clone().map_err(ServersError::system("duplicate a temporary file"))?;
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).process_group(0);
    let status = command.status().map_err(ServersError::system("start sh"))?;
    if status.success() {
        return Ok(());
    }
    let mut text = String::new();
    let read = said.rewind().and_then(|()| said.read_to_string(&mut text));
    read.map_err(ServersError::system("read what a command said"))?;
    Err(ExperimentError::UserCommand { line: line.to_owned(), status: status.to_string(), said: tail(&text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_setting_is_undone_also_where_it_fails_half_way() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let touch = format!("touch {}", mark.display());
        let unset = vec!["exit 3".to_owned(), format!("rm {}", mark.display())];
        let mode =
            UserMode { set: vec![touch.clone(), "echo no >&2; exit 1".into()], unset, ..Default::default() };
        let error = AppliedSetting::set(&mode).err().unwrap().to_string();
        assert!(error.contains("exit 1") && error.contains("no"), "{error}");
        assert!(!mark.exists(), "undone although the first undo command failed");
        let mode = UserMode { set: vec![touch], ..mode };
        let setting = AppliedSetting::set(&mode).unwrap();
        assert!(mark.exists());
        assert!(setting.unset().unwrap_err().to_string().contains("exit 3"));
        assert!(!mark.exists());
    }
}
