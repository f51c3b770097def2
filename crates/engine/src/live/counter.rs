//! The user's own progress counter: a number that grows with the work done.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use super::LiveError;

/// Where the counter is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counter {
    /// The first number in a file.
    File(PathBuf),
    /// The first number that a shell command prints.
    Command(String),
}

impl FromStr for Counter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("file:") {
            Some("") => Err("`file:` needs a path after it".to_owned()),
            Some(path) => Ok(Self::File(path.into())),
            None if text.trim().is_empty() => {
                Err("name a command that prints a number, or file:PATH".to_owned())
            }
            None => Ok(Self::Command(text.to_owned())),
        }
    }
}

impl Counter {
    /// Blocks of a trial must be long against one reading.
    pub fn block(&self) -> Duration {
        match self {
            Self::File(_) => Duration::from_millis(20),
            Self::Command(_) => Duration::from_millis(400),
        }
    }

    /// The counter now.
    ///
    /// # Errors
    /// The file cannot be read, the command fails, or neither holds a number; the message says which.
    pub fn read(&self) -> Result<f64, LiveError> {
        let failed = |reason: String| LiveError::Progress { counter: format!("{self:?}"), reason };
        let text = match self {
            Self::File(path) => std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?,
            Self::Command(command) => {
                let output = Command::new("sh")
                    .args(["-c", command])
                    .stdin(Stdio::null())
                    .stderr(Stdio::inherit())
                    .output()
                    .map_err(|e| failed(e.to_string()))?;
                if !output.status.success() {
                    return Err(failed(output.status.to_string()));
                }
                String::from_utf8_lossy(&output.stdout).into_owned()
            }
        };
        first_number(&text).ok_or_else(|| failed(format!("no number in `{}`", text.trim())))
    }
}

fn first_number(text: &str) -> Option<f64> {
    text.split(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E')))
        .find_map(|word| word.parse().ok().filter(|n: &f64| n.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_first_number() {
        assert_eq!(first_number("total_commands_processed:1234\r\n"), Some(1234.0));
        assert_eq!(first_number("queries = 1.5e3 (12)"), Some(1500.0));
        assert_eq!(first_number("none - here"), None);
    }

    #[test]
    fn reads_files_and_commands_and_names_what_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n");
        std::fs::write(&path, "42\n").unwrap();
        let file: Counter = format!("file:{}", path.display()).parse().unwrap();
        assert!((file.read().unwrap() - 42.0).abs() < 1e-9);
        let command: Counter = "echo 7".parse().unwrap();
        assert!((command.read().unwrap() - 7.0).abs() < 1e-9);
        for bad in ["exit 3", "echo nothing", "file:/nonexistent"] {
            let error = bad.parse::<Counter>().unwrap().read().unwrap_err().to_string();
            assert!(error.contains("progress"), "{error}");
        }
        assert!("file:".parse::<Counter>().is_err());
        assert!(" ".parse::<Counter>().is_err());
    }
}
