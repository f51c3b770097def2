//! Runs programs of this machine, with errors that name the command and its status.

use std::io;
use std::process::{Command, Output};

use crate::error::{Error, Result};

/// Runs a program to its end. Returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&run(command)?.stdout).into_owned())
}

/// Runs a program to its end, which must be successful.
pub(crate) fn run(command: &mut Command) -> Result<Output> {
    let output = command.output().map_err(|error| cannot_start(command, error))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(Error::Tool {
        command: line(command),
        status: output.status.to_string(),
        stderr: tail(&String::from_utf8_lossy(&output.stderr), 12),
    })
}

/// Why a program did not start: most often it is not installed.
pub(crate) fn cannot_start(command: &Command, error: io::Error) -> Error {
    let program = command.get_program().to_string_lossy().into_owned();
    if error.kind() == io::ErrorKind::NotFound {
        return Error::NoTool { program };
    }
    Error::System { what: format!("start `{program}`"), source: error }
}

/// A command as typed in a shell, for messages.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_reported_with_the_remedy() {
        let error = run(&mut Command::new("no-such-program-of-the-lab")).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("`no-such-program-of-the-lab`") && said.contains("`scripts/setup lab`"),
            "{said}"
        );
    }

    #[test]
    fn a_failure_is_reported_with_the_command_and_its_output() {
        let error = output(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c echo broken >&2; exit 3` failed (exit status: 3): broken");
    }
}
